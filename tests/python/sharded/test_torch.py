"""Which part of a tensor a rank holds, and DTensors made of it: every rank of several meshes, in one process that plays them."""
import inspect
import itertools
import pathlib
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

import shardwright as sw
import shardwright.torch as st
from shardwright.arrays import box_of_dtensor
from shardwright.torch.parts import part_of


@pytest.fixture
def as_rank():
    """as_rank(r, shape): the mesh, seen from rank r. Nothing is sent."""
    def begin(rank, shape, names=None):
        if dist.is_initialized():
            dist.destroy_process_group()
        size = int(np.prod(shape))
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
        return DeviceMesh("cpu", torch.arange(size).reshape(shape), mesh_dim_names=names)
    yield begin
    if dist.is_initialized():
        dist.destroy_process_group()


def local(whole, mesh, placements):
    """What torch itself gives this rank."""
    return distribute_tensor(whole, mesh, placements, src_data_rank=None).to_local()


CASES = [((2,), [Shard(0)]), ((3,), [Shard(1)]), ((4,), [Shard(0)]), ((2,), [Replicate()]), ((2, 2), [Shard(0), Shard(1)]), ((2, 2), [Shard(1), Shard(1)]),
         ((2, 3), [Replicate(), Shard(-1)]), ((2, 2), [_StridedShard(0, split_factor=2), Shard(0)]), ((2,), [_StridedShard(1, split_factor=2)])]


@pytest.mark.parametrize("mesh_shape,placements", CASES, ids=[f"{m}-{p}" for m, p in CASES])
def test_parts_are_those_of_torch(tmp_path, as_rank, mesh_shape, placements):
    whole = torch.arange(10 * 8, dtype=torch.float32).reshape(10, 8)
    sw.save(tmp_path / "a.safetensors", {"w": whole})
    for rank in range(int(np.prod(mesh_shape))):
        mesh = as_rank(rank, mesh_shape)
        loaded = st.load(tmp_path / "a.safetensors", placements, mesh)["w"]
        assert isinstance(loaded, DTensor) and loaded.shape == whole.shape and loaded.device_mesh == mesh
        assert torch.equal(loaded.to_local(), local(whole, mesh, placements)), rank
        alone = st.load(tmp_path / "a.safetensors", placements, mesh, local=True)["w"]
        assert type(alone) is torch.Tensor and torch.equal(alone, loaded.to_local())


def test_uneven_and_empty_parts(as_rank):
    for rank, shape in itertools.product(range(4), [(5, 3), (1, 3), (0, 3), (2, 3, 4)]):
        mesh = as_rank(rank, (4,))
        part = part_of(shape, (4,), mesh.get_coordinate(), [Shard(0)])
        extent, offset = compute_local_shape_and_global_offset(shape, mesh, [Shard(0)])
        assert part.shape == tuple(extent)
        if 0 not in extent:
            assert [start for start, _ in part.boxes()] == [tuple(offset)]


TYPES = ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool", "complex64"]


@pytest.mark.parametrize("name", TYPES)
def test_types_scalars_and_ties(tmp_path, as_rank, name):
    raw = torch.arange(64, dtype=torch.uint8).reshape(8, 8) % 2
    values = {"w": raw.to(getattr(torch, name)), "s": raw[0, 1].to(getattr(torch, name)), "none": raw[:0].to(getattr(torch, name))}
    sw.save(tmp_path / "a.safetensors", values)
    mesh = as_rank(1, (2,))
    loaded = st.load(tmp_path / "a.safetensors", lambda t: [Shard(0)] if t.ndim else [Replicate()], mesh, local=True)
    assert all(loaded[key].dtype == values[key].dtype for key in values) and loaded["s"].shape == () and loaded["none"].shape == (0, 8)
    assert torch.equal(loaded["w"].view(torch.uint8), values["w"][4:].contiguous().view(torch.uint8))


def test_boxes_of_one_tensor_bring_it_to_the_host_once(as_rank, monkeypatch):
    """As experts are taken apart on an accelerator: each box brings what it holds."""
    whole = torch.arange(8 * 6 * 4, dtype=torch.bfloat16).reshape(8, 6, 4)
    spread = distribute_tensor(whole, as_rank(1, (2,)), [Shard(1)], src_data_rank=None)
    moved = []

    def copied(tensor):
        moved.append(tensor.nbytes)
        return tensor.clone()
    monkeypatch.setattr(torch.Tensor, "cpu", copied)
    boxes = [box_of_dtensor("w", spread, (i, 0, 0), (1, 6, 4), (2, 1)) for i in range(8)]
    assert sum(moved) == whole.nbytes // 2
    assert all(box.shape == (4, 6) and box.spread for box in boxes)
    (start, array), = boxes[3].keep
    assert start == (0, 3) and array.tolist() == whole[3, 3:].T.tolist()
    empty = distribute_tensor(whole[:0], as_rank(1, (2,)), [Shard(0)], src_data_rank=None)
    (start, array), = box_of_dtensor("w", empty, (0, 0, 0), (0, 1, 4), (2, 0)).keep
    assert start == (0, 0) and array.shape == (4, 0)


def test_only_the_part_is_read(tmp_path, as_rank):
    sw.save(tmp_path / "a.safetensors", {"w": np.zeros((4096, 256), "f4"), "v": np.zeros((64, 65536), "f4")})
    mesh = as_rank(2, (4,))
    checkpoint = sw.open(tmp_path / "a.safetensors")
    before = checkpoint.bytes_read
    st.load(checkpoint, {"w": [Shard(0)]}, mesh)
    assert checkpoint.bytes_read - before <= 1.02 * 2**20
    before = checkpoint.bytes_read
    st.load(checkpoint, {"v": [Shard(1)]}, mesh)  # columns of 64 KiB, with gaps of 192 between them
    assert checkpoint.bytes_read - before <= 1.02 * 2**22


def test_what_does_not_fit(tmp_path, as_rank):
    sw.save(tmp_path / "a.safetensors", {"w": np.zeros((4, 4), "f4"), "s": np.float32(1)})
    mesh = as_rank(0, (2,))
    for placed, line in (([Shard(0)], "'s'"), ([Shard(2)], "of a tensor of 2 dimensions"), ([Partial()], "no placement of a stored tensor"),
                         ([Shard(0), Shard(1)], "2 placements for a mesh of 1 dimensions")):
        with pytest.raises(sw.InvalidArgumentError) as raised:
            st.load(tmp_path / "a.safetensors", placed, mesh)
        assert line in str(raised.value)
    with pytest.raises(sw.TensorNotFoundError):
        st.load(tmp_path / "a.safetensors", {"x": [Shard(0)]}, mesh)


def test_plans_of_transformers(tmp_path, as_rank):
    """Every parameter of a small Llama gets the placement that transformers itself would give it."""
    transformers = pytest.importorskip("transformers")
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      vocab_size=48, attention_bias=True)
    model = transformers.LlamaForCausalLM(config)
    values = {name: value.detach().clone() for name, value in model.state_dict().items()}
    sw.save(tmp_path / "a.safetensors", values)
    plan = model.tp_plan
    assert plan
    mesh = as_rank(1, (2,))
    loaded = st.load(tmp_path / "a.safetensors", st.tensor_parallel(plan), mesh)
    apply_tensor_parallelism(model, mesh, model._expand_parallel_plan(plan))
    compared = 0
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            assert loaded[name].placements == parameter.placements and loaded[name].to_local().shape == parameter.to_local().shape, name
            compared += 1
    assert compared >= 14
    q = values["model.layers.0.self_attn.q_proj.weight"]
    assert torch.equal(loaded["model.layers.0.self_attn.q_proj.weight"].to_local(), q[16:])
    down = values["model.layers.1.mlp.down_proj.weight"]
    assert torch.equal(loaded["model.layers.1.mlp.down_proj.weight"].to_local(), down[:, 32:])
    with pytest.raises(sw.InvalidArgumentError, match="no such style"):
        st.tensor_parallel({"layers.*.q": "diagonal"})


def test_what_the_page_on_layouts_shows_runs(tmp_path, as_rank, monkeypatch):
    transformers = pytest.importorskip("transformers")
    page = (pathlib.Path(__file__).parents[3] / "docs" / "layouts.md").read_text()
    block, = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "shardwright.torch." in block]
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                                                                   num_key_value_heads=2, vocab_size=48))
    values = {name: value.detach().clone() for name, value in model.state_dict().items()}
    sw.save(tmp_path / "llama", values)
    monkeypatch.chdir(tmp_path)
    names = {"model": model, "device_mesh": as_rank(1, (2,))}
    exec(block, names)
    assert sorted(names["weights"]) == sorted(values) and type(names["weights"]["lm_head.weight"]) is torch.Tensor
    assert torch.equal(names["weights"]["model.layers.0.mlp.down_proj.weight"], values["model.layers.0.mlp.down_proj.weight"][:, 32:])


def test_everything_public_has_a_contract():
    assert [name for name in st.__all__ if inspect.isfunction(getattr(st, name)) and not (getattr(st, name).__doc__ or "").strip()] == []


def test_a_plan_on_one_axis_of_a_mesh(tmp_path, as_rank):
    sw.save(tmp_path / "a.safetensors", {"layers.3.q.weight": np.arange(32, dtype="f4").reshape(8, 4), "layers.3.g.weight": np.arange(32, dtype="f4").reshape(8, 4)})
    mesh = as_rank(3, (2, 2), ("data", "tp"))
    plan = st.tensor_parallel({"layers.*.q": "colwise", "layers.*.g": "packed_colwise"}, axis="tp", mesh=mesh)
    loaded = st.load(tmp_path / "a.safetensors", plan, mesh)
    assert loaded["layers.3.q.weight"].placements == (Replicate(), Shard(0))
    assert loaded["layers.3.q.weight"].to_local()[:, 0].tolist() == [16, 20, 24, 28]
    assert loaded["layers.3.g.weight"].to_local()[:, 0].tolist() == [8, 12, 24, 28], "of each half the second part"
