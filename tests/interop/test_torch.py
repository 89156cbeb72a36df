"""PyTorch reads what this writes, this reads what PyTorch writes, and huggingface_hub's shards of .bin are ours."""
import collections
import json
from operator import itemgetter

import numpy as np
import pytest
import raw
import torch
from huggingface_hub import load_torch_model, save_torch_state_dict

NAMES = {
    "BOOL": torch.bool, "F4": torch.float4_e2m1fn_x2, "U8": torch.uint8, "I8": torch.int8, "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "I16": torch.int16, "U16": torch.uint16, "F16": torch.float16, "BF16": torch.bfloat16,
    "I32": torch.int32, "U32": torch.uint32, "F32": torch.float32, "C64": torch.complex64, "F64": torch.float64, "I64": torch.int64,
    "U64": torch.uint64,
}
TYPES = {dtype: name for name, dtype in NAMES.items()}


def bytes_of(tensor: torch.Tensor) -> bytes:
    tensor = tensor.detach().contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def as_raw(tensor: torch.Tensor) -> raw.Tensor:
    shape = list(tensor.shape)
    if tensor.dtype == torch.float4_e2m1fn_x2:
        shape[-1] *= 2  # torch counts pairs
    return TYPES[tensor.dtype], shape, bytes_of(tensor)


def flattened(value, path="") -> dict[str, torch.Tensor]:
    """Tensors by the names that they have here."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {name: tensor for key, item in items for name, tensor in flattened(item, f"{path}.{key}" if path else str(key)).items()}


def load(path, **kwargs) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True, **kwargs)


def random_tensor(rng, dtype, shape) -> torch.Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    width = torch.empty(0, dtype=dtype).element_size()
    values = torch.from_numpy(rng.integers(0, 2 if dtype == torch.bool else 256, count * width, dtype=np.uint8))
    return values.view(dtype).reshape(shape).clone() if count else torch.empty(shape, dtype=dtype)


SAMPLES = ["basic_statedict", "module_sd", "adamw_sd", "param_misc", "align4096", "nocrc", "skipdata", "legacy_nonzip", "proto2", "proto3"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples_hold_what_torch_says(shardwright, data, tmp_path, sample):
    source = data / "torch" / f"{sample}.pt"
    shardwright.copy(source, tmp_path / "x.safetensors")
    assert raw.read(tmp_path / "x.safetensors") == {name: as_raw(tensor) for name, tensor in flattened(load(source)).items()}
    assert shardwright.run("verify", "--full", source).returncode == 0


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_whatever_torch_saves(shardwright, tmp_path, rng, zipped):
    """Types, strides, shared storages, nesting, parameters."""
    state = collections.OrderedDict((f"t.{name}", random_tensor(rng, dtype, [3, 4])) for name, dtype in NAMES.items())
    base = random_tensor(rng, torch.float32, [4, 5, 6])
    state |= {
        "permuted": base.permute(2, 0, 1), "sliced": base[1:3, ::2, 4], "row": base[2], "expanded": base[0, :1].expand(3, 6), "flat": base.view(-1),
        "scalar": torch.tensor(3.5), "nothing": torch.empty(0, 7), "parameter": torch.nn.Parameter(random_tensor(rng, torch.bfloat16, [5])),
        "last": random_tensor(rng, torch.int16, [2, 2]).t(), "half": base.half().transpose(0, 2),
        "nested": {"list": [base[0], {"deep": base[3]}], 7: base[1]},
    }
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    shardwright.copy(tmp_path / "a.pt", tmp_path / "x.safetensors")
    wanted = {name: as_raw(tensor) for name, tensor in flattened(state).items()}
    assert raw.read(tmp_path / "x.safetensors") == wanted
    assert shardwright.json("info", tmp_path / "a.pt")["format"] == "torch"
    assert shardwright.json("diff", tmp_path / "a.pt", tmp_path / "x.safetensors") == []
    hashes = [sorted(shardwright.json("hash", tmp_path / name), key=itemgetter("name")) for name in ("a.pt", "x.safetensors")]
    assert hashes[0] == hashes[1] and len(hashes[0]) == len(wanted)


def test_ties_are_those_of_storages(shardwright, tmp_path, rng):
    weight = random_tensor(rng, torch.float32, [10, 4])
    torch.save({"embed": weight, "head": weight, "other": weight.clone()}, tmp_path / "a.bin")
    assert shardwright.json("info", tmp_path / "a.bin")["ties"] == {"head": "embed"}
    shardwright.copy(tmp_path / "a.bin", tmp_path / "b.bin")
    back = load(tmp_path / "b.bin")
    assert back["head"].data_ptr() == back["embed"].data_ptr() != back["other"].data_ptr()
    assert (tmp_path / "b.bin").stat().st_size < 3 * weight.nbytes + 2000


@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mmap"])
def test_torch_reads_ours(shardwright, tmp_path, rng, mmap):
    tensors = {name: tensor for name, tensor in raw.every_dtype(rng).items() if tensor[0] in NAMES}
    raw.write(tmp_path / "a.safetensors", tensors)
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.pt")
    found = load(tmp_path / "b.pt", mmap=mmap)
    assert list(found) == list(tensors)
    assert {name: as_raw(tensor) for name, tensor in found.items()} == tensors
    for tensor in found.values():
        assert tensor.is_contiguous()
        if mmap and tensor.numel():
            assert tensor.data_ptr() % 64 == 0
    shardwright.copy(tmp_path / "b.pt", tmp_path / "c.safetensors")
    assert raw.read(tmp_path / "c.safetensors") == tensors
    # The same tensors, the same bytes: not the name, the budget or the time.
    shardwright.copy("--memory", "64MiB", tmp_path / "c.safetensors", tmp_path / "d.bin")
    assert (tmp_path / "d.bin").read_bytes() == (tmp_path / "b.pt").read_bytes()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(6))
        self.norm = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 50, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("limit", [700, 1700, 10**9])
def test_shards_are_the_hubs(shardwright, tmp_path, limit):
    state = Model().state_dict()
    (tmp_path / "hub").mkdir()
    save_torch_state_dict(state, tmp_path / "hub", max_shard_size=limit, safe_serialization=False)
    shardwright.copy(tmp_path / "hub", tmp_path / "ours", "--to", "torch", "--max-shard-size", str(limit))
    names = sorted(path.name for path in (tmp_path / "hub").iterdir())
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == names
    assert ("pytorch_model.bin.index.json" in names) == (limit < 10**9)
    for name in names:
        if name.endswith(".json"):
            assert json.loads((tmp_path / "ours" / name).read_text()) == json.loads((tmp_path / "hub" / name).read_text())
        else:
            ours, hub = load(tmp_path / "ours" / name), load(tmp_path / "hub" / name)
            assert list(ours) == list(hub)
            assert all(torch.equal(ours[key], hub[key]) for key in hub)
    model = Model()
    load_torch_model(model, tmp_path / "ours", weights_only=True, safe=False)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    shardwright.copy(tmp_path / "ours", tmp_path / "one.safetensors")
    assert shardwright.json("diff", tmp_path / "hub", tmp_path / "one.safetensors") == []
    if limit < 10**9:
        index = tmp_path / "ours" / "pytorch_model.bin.index.json"
        before = json.loads(index.read_text())
        index.unlink()
        shardwright.run("reindex", tmp_path / "ours")
        assert json.loads(index.read_text()) == before


def test_files_over_four_gigabytes(shardwright, tmp_path):
    """Sizes and offsets of zip64, and a file full of holes: nothing of it is read but its end."""
    with torch.serialization.skip_data():
        torch.save({"big": torch.empty(2**32 + 16, dtype=torch.uint8), "after": torch.empty(3)}, tmp_path / "big.pt")
    shown = shardwright.run("show", tmp_path / "big.pt", "big", "--slice", f"{2**32}:").stdout
    assert shown.startswith("U8 [16]")
    shardwright.copy(tmp_path / "big.pt", tmp_path / "small.safetensors", "--include", "after")
    assert raw.read(tmp_path / "small.safetensors")["after"][:2] == ("F32", [3])


def test_minilm_is_loaded_by_transformers(shardwright, minilm, tmp_path):
    from transformers import AutoModel
    shardwright.copy(minilm, tmp_path / "bin", "--to", "torch", "--max-shard-size", "20MB")
    assert len(list((tmp_path / "bin").glob("pytorch_model-*.bin"))) > 2
    ours = AutoModel.from_pretrained(tmp_path / "bin", use_safetensors=False).state_dict()
    theirs = AutoModel.from_pretrained(minilm).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
