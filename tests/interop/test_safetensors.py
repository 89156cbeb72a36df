"""safetensors and huggingface_hub read what this writes, this reads what they write, and the hub's split is ours."""
import json

import numpy as np
import pytest
import raw
import safetensors
import torch
from huggingface_hub import load_torch_model, save_torch_state_dict
from safetensors.torch import load_file, save_file, save_model

TORCH_DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
                torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
                torch.complex64, torch.uint16, torch.uint32, torch.uint64]


def library_view(path) -> dict[str, raw.Tensor]:
    """What the safetensors library itself says is in the file: every dtype, as bytes."""
    return {name: (info["dtype"], list(info["shape"]), bytes(info["data"])) for name, info in safetensors.deserialize(path.read_bytes())}


def torch_tensor(rng, dtype, shape) -> torch.Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    width = torch.empty(0, dtype=dtype).element_size()
    values = torch.from_numpy(rng.integers(0, 2 if dtype == torch.bool else 256, max(1, count * width), dtype=np.uint8))
    return values[:count * width].view(dtype).reshape(shape).clone()


def test_every_dtype_is_copied_bit_for_bit(shardwright, tmp_path, rng):
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    tensors = raw.every_dtype(rng)
    raw.write(source, tensors, {"format": "pt"})
    assert library_view(source) == tensors
    shardwright.copy(source, target)
    assert library_view(target) == tensors
    # The same order and the same header: the whole file is the same.
    assert target.read_bytes() == source.read_bytes()


def test_every_dtype_survives_sharding(shardwright, tmp_path, rng):
    source = tmp_path / "a.safetensors"
    tensors = raw.every_dtype(rng)
    raw.write(source, tensors)
    shardwright.copy(source, tmp_path / "shards", "--max-shard-size", "200")
    files = sorted((tmp_path / "shards").glob("*.safetensors"))
    assert len(files) > 3
    found = {}
    for file in files:
        found |= library_view(file)
    assert found == tensors
    shardwright.copy(tmp_path / "shards", tmp_path / "one.safetensors")
    assert library_view(tmp_path / "one.safetensors") == tensors


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_torch_writes_and_reads(shardwright, tmp_path, rng, dtype):
    tensors = {f"{i}.{len(shape)}": torch_tensor(rng, dtype, shape) for i, shape in enumerate([[4, 5], [], [0, 3], [1, 1, 7]])}
    save_file(tensors, tmp_path / "a.safetensors", {"format": "pt"})
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    back = load_file(tmp_path / "b.safetensors")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape
        assert torch.equal(back[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name


def test_ls_tells_where_the_bytes_are(shardwright, tmp_path, rng):
    tensors = raw.every_dtype(rng)
    raw.write(tmp_path / "a.safetensors", tensors)
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "d", "--max-shard-size", "300")
    listed = shardwright.json("ls", tmp_path / "d")
    assert {row["name"] for row in listed} == tensors.keys()
    for row in listed:
        dtype, shape, data = tensors[row["name"]]
        assert (row["dtype"], row["shape"], row["nbytes"]) == (dtype, shape, len(data))
        content = (tmp_path / "d" / row["shard"]).read_bytes()
        assert content[row["offset"]:row["offset"] + row["nbytes"]] == data, row


def test_info_counts(shardwright, tmp_path, rng):
    tensors = raw.every_dtype(rng)
    raw.write(tmp_path / "a.safetensors", tensors, {"format": "pt", "author": "someone"})
    info = shardwright.json("info", tmp_path / "a.safetensors")
    assert info["format"] == "safetensors"
    assert info["tensors"] == len(tensors)
    assert info["nbytes"] == sum(len(data) for _, _, data in tensors.values())
    assert info["parameters"] == sum(int(np.prod(shape)) for _, shape, _ in tensors.values())
    assert info["metadata"] == {"format": "pt", "author": "someone"}
    assert info["dtypes"]["BF16"] == {"tensors": 4, "nbytes": sum(len(d) for t, _, d in tensors.values() if t == "BF16")}
    assert info["shards"] == [{"file": "a.safetensors", "tensors": len(tensors), "nbytes": info["nbytes"]}]


def test_metadata_survives(shardwright, tmp_path, rng):
    metadata = {"format": "pt", "note": "caf\u00e9 \"quoted\" \n new line"}
    raw.write(tmp_path / "a.safetensors", {"x": ("F32", [2], rng.bytes(8))}, metadata)
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    with safetensors.safe_open(tmp_path / "b.safetensors", "numpy") as file:
        assert file.metadata() == metadata


def test_empty_checkpoint(shardwright, tmp_path):
    save_file({}, tmp_path / "a.safetensors", {"format": "pt"})
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def random_state_dict(rng) -> dict[str, torch.Tensor]:
    """Names, dtypes and sizes at random; sometimes one tensor larger than any limit, at most one empty one: where several lie at one offset,
    load_file gives them in the random order of a hash map."""
    tensors = {}
    empty = False
    for i in range(int(rng.integers(1, 40))):
        dtype = TORCH_DTYPES[int(rng.integers(len(TORCH_DTYPES)))]
        kind = rng.integers(10)
        shape = [0, 3] if kind == 0 and not empty else [] if kind == 1 else [int(rng.integers(1, 40)), int(rng.integers(1, 40))]
        empty = empty or 0 in shape
        if kind == 2:
            shape = [300, 20]
        tensors[f"layer.{int(rng.integers(100))}.{i}"] = torch_tensor(rng, dtype, shape)
    return tensors


@pytest.mark.parametrize("seed", range(25))
def test_split_is_the_hubs(shardwright, tmp_path, seed):
    rng = np.random.default_rng(seed)
    source, ours, hubs = tmp_path / "a.safetensors", tmp_path / "ours", tmp_path / "hubs"
    save_file(random_state_dict(rng), source, {"format": "pt"})
    limit = ["1KB", "2KB", "3.5KB", "10KB", "1MB"][int(rng.integers(5))]
    hubs.mkdir()
    save_torch_state_dict(load_file(source), hubs, max_shard_size=limit)
    shardwright.copy(source, ours, "--max-shard-size", limit)
    assert sorted(p.name for p in ours.iterdir()) == sorted(p.name for p in hubs.iterdir())
    for file in hubs.iterdir():
        assert (ours / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize("seed", range(5))
def test_resplit_of_a_sharded_source(shardwright, tmp_path, seed):
    """The order is that of load_file over the sorted shards, not that of the names or of the first split."""
    rng = np.random.default_rng(1000 + seed)
    source, ours, hubs = tmp_path / "source", tmp_path / "ours", tmp_path / "hubs"
    source.mkdir()
    hubs.mkdir()
    save_torch_state_dict(random_state_dict(rng), source, max_shard_size="4KB")
    state = {}
    for file in sorted(source.glob("*.safetensors")):
        state |= load_file(file)
    save_torch_state_dict(state, hubs, max_shard_size="2.5KB")
    shardwright.copy(source, ours, "--max-shard-size", "2.5KB")
    assert sorted(p.name for p in ours.iterdir()) == sorted(p.name for p in hubs.iterdir())
    for file in hubs.iterdir():
        assert (ours / file.name).read_bytes() == file.read_bytes(), file.name


def test_tensor_over_the_limit_is_warned_of_and_strict_refuses(shardwright, tmp_path):
    save_file({"big": torch.zeros(100), "small": torch.zeros(2)}, tmp_path / "a.safetensors")
    summary = shardwright.copy(tmp_path / "a.safetensors", tmp_path / "d", "--max-shard-size", "100")
    assert any("big" in warning for warning in summary["warnings"])
    shardwright.run("copy", tmp_path / "a.safetensors", tmp_path / "e", "--max-shard-size", "100", "--strict", code=2)
    assert not (tmp_path / "e").exists()


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.body = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight


def test_ties_of_the_hub(shardwright, tmp_path):
    torch.manual_seed(1)
    source = tmp_path / "source"
    source.mkdir()
    model = Tied()
    save_torch_state_dict(model.state_dict(), source, max_shard_size="0.3KB")
    ties = {"head.weight": "embed.weight"}
    assert shardwright.json("info", source)["ties"] == ties
    shardwright.copy(source, tmp_path / "one.safetensors")
    assert shardwright.json("info", tmp_path / "one.safetensors")["ties"] == ties
    assert "head.weight" not in raw.read(tmp_path / "one.safetensors")
    shardwright.copy(tmp_path / "one.safetensors", tmp_path / "again", "--max-shard-size", "0.3KB")
    for path in (tmp_path / "again", tmp_path / "one.safetensors"):
        other = Tied()
        load_torch_model(other, path, strict=False)
        assert torch.equal(other.embed.weight, model.embed.weight) and other.head.weight is other.embed.weight
        assert torch.equal(other.body.weight, model.body.weight)
    notes = json.loads((tmp_path / "again" / "model.safetensors.index.json").read_text())["metadata"]
    assert notes["head.weight"] == "embed.weight"
    assert notes["total_size"] == (20 * 8 + 8 * 8 + 8) * 4


def test_ties_of_save_model(shardwright, tmp_path):
    save_model(Tied(), str(tmp_path / "a.safetensors"))
    assert shardwright.json("info", tmp_path / "a.safetensors")["ties"] == {"head.weight": "embed.weight"}


def test_hub_loads_what_we_split(shardwright, tmp_path):
    torch.manual_seed(2)
    model, other = (torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 5)) for _ in range(2))
    save_file(model.state_dict(), tmp_path / "a.safetensors", {"format": "pt"})
    summary = shardwright.copy(tmp_path / "a.safetensors", tmp_path / "d", "--max-shard-size", "1KB")
    assert summary["shards"] > 1
    missing, unexpected = load_torch_model(other, tmp_path / "d", strict=True)
    assert not missing and not unexpected
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_files_have_the_mode_of_the_umask(shardwright, tmp_path):
    save_file({"x": torch.zeros(3)}, tmp_path / "a.safetensors")
    shardwright.run("copy", tmp_path / "a.safetensors", tmp_path / "b.safetensors", umask=0o027)
    assert (tmp_path / "b.safetensors").stat().st_mode & 0o777 == 0o640
