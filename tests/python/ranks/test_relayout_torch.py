"""DTensors of PyTorch on gloo: relayout and save by two processes."""
import pathlib
import socket
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from job import run  # noqa: E402

CODE = """
import os, random
import numpy as np, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
import shardwright as sw
import shardwright.torch as st

index, count, at = int(os.environ["INDEX"]), int(os.environ["COUNT"]), os.environ["AT"]
dist.init_process_group("gloo", init_method="tcp://" + os.environ["ADDRESS"], rank=index, world_size=count)
assert (sw.get_process_index(), sw.get_process_count()) == (index, count)
seed = int(os.environ["SEED"]); print("seed", seed); rng = random.Random(seed)
meshes = [init_device_mesh("cpu", (count,)), init_device_mesh("cpu", (count, 1)), init_device_mesh("cpu", (1, count))]

def placements(mesh, shape):
    return [rng.choice([Replicate()] + [Shard(d - len(shape) * rng.choice([0, 1])) for d in range(len(shape))]) for _ in range(mesh.ndim)]

for number in range(30):
    shape = [rng.choice([0, 1, 3, 8, 17]) for _ in range(rng.choice([0, 1, 2, 3]))]
    dtype = rng.choice([torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.float64, torch.complex64])
    value = (torch.arange(int(np.prod(shape, dtype=int))) * 7 % 123).reshape(shape).to(dtype)
    mesh, other = rng.choice(meshes), rng.choice(meshes)
    have = st.distribute_tensor(value, placements(mesh, shape), mesh, uneven=True)
    want = placements(other, shape)
    moved = st.relayout(have, want, other, uneven=True)
    assert value.numel() == 0 or torch.equal(moved.full_tensor(), value), (seed, number)
    theirs = st.distribute_tensor(value, want, other, uneven=True)
    assert torch.equal(moved.to_local(), theirs.to_local()) and moved.placements == theirs.placements, (seed, number)
    official = torch.distributed.tensor.distribute_tensor(value.clone(), other, list(moved.placements))
    assert torch.equal(official.to_local(), moved.to_local()), (seed, number, shape, want)
    assert st.relayout(moved, want, uneven=True) is moved

mesh = meshes[0]
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex128):  # gloo itself cannot send all of these
    value = torch.arange(64.0).reshape(8, 8).to(dtype)
    moved = st.relayout(st.distribute_tensor(value, [Shard(0)], mesh), [Shard(1)])
    assert torch.equal(moved.to_local().contiguous().view(torch.uint8), value.chunk(count, 1)[index].contiguous().view(torch.uint8)), dtype
parameter = st.distribute_variable(torch.ones(8, 4), [Shard(0)], mesh)
assert isinstance(parameter, torch.nn.Parameter) and parameter.to_local().shape == (8 // count, 4) and parameter.requires_grad
for bad, kind in ((lambda: st.relayout(st.distribute_tensor(torch.ones(7), [Replicate()], mesh), [Shard(0)]), sw.InvalidArgumentError),
                  (lambda: st.distribute_tensor(torch.ones(7), [Shard(0)], mesh), sw.InvalidArgumentError),
                  (lambda: st.distribute_tensor(torch.ones(8), [Shard(1)], mesh), sw.InvalidArgumentError),
                  (lambda: st.distribute_tensor(torch.ones(8), [Partial()], mesh), sw.InvalidArgumentError),
                  (lambda: st.relayout(torch.ones(8), [Shard(0)], mesh), sw.InvalidArgumentError)):
    try:
        bad()
        raise SystemExit("took what cannot be")
    except kind:
        pass

whole = {"rows": torch.arange(64.0).reshape(16, 4), "columns": torch.arange(60).reshape(6, 10).to(torch.bfloat16), "uneven": torch.arange(7), "same": torch.ones(3), "scalar": torch.tensor(3.5)}
laid = {"rows": Shard(0), "columns": Shard(1), "uneven": Shard(0), "scalar": Replicate()}
tensors = {name: st.distribute_tensor(t, [laid[name]], mesh, uneven=True) if name in laid else t for name, t in whole.items()}
sw.save(at + "/together.safetensors", tensors)
if index == 0:
    sw.save(at + "/alone.safetensors", whole)
from job import speaks
from shardwright.ranks import current_ranks
speaks(current_ranks())
dist.barrier()
dist.destroy_process_group()
"""


def test_two_processes(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run(2, CODE, AT=tmp_path, SEED=int(np.random.SeedSequence().entropy % 2**31), ADDRESS=f"127.0.0.1:{port}", OMP_NUM_THREADS=1)
    assert (tmp_path / "together.safetensors").read_bytes() == (tmp_path / "alone.safetensors").read_bytes()
