"""accelerate reads the offload folders that this writes, this reads what accelerate writes, and pointers into safetensors files are followed."""
import json
import warnings

import numpy as np
import pytest
import raw
import torch
from accelerate.utils import OffloadedWeightsLoader, offload_state_dict
from safetensors.torch import load_file, save_file

import shardwright as sw

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
          torch.complex64, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


def bits(tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same(found, expected) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        assert torch.equal(bits(found[name]), bits(tensor)), name


@pytest.fixture
def tensors(rng):
    """Every type in every rank that is special: scalars and tensors without elements have files of their own kind."""
    def values(dtype, shape):
        width = torch.empty(0, dtype=dtype).element_size()
        count = int(np.prod(shape, dtype=np.int64)) * width
        made = torch.from_numpy(rng.integers(0, 2 if dtype == torch.bool else 256, max(count, 1), dtype=np.uint8))
        return made[:count].view(dtype).reshape(shape).clone()
    return {f"m.{str(dtype).removeprefix('torch.')}.{len(shape)}": values(dtype, shape) for dtype in DTYPES for shape in ([], [0], [3, 5])
            if (dtype, shape) != (torch.uint64, [])}  # which accelerate cannot read


def test_what_accelerate_wrote_is_read_bit_for_bit(shardwright, tmp_path, tensors):
    offload_state_dict(tmp_path / "folder", tensors)
    shardwright.copy(tmp_path / "folder", tmp_path / "out", "--to", "safetensors", "--max-shard-size", "100B")
    with sw.open(tmp_path / "out") as opened:
        assert list(opened) and opened.format == "safetensors"
    found = {}
    for file in (tmp_path / "out").glob("*.safetensors"):
        found |= load_file(file)
    same({name: found[name] for name in tensors}, tensors)
    assert len(list((tmp_path / "out").iterdir())) == 10
    assert shardwright.json("diff", tmp_path / "folder", tmp_path / "out") == []
    assert shardwright.json("info", tmp_path / "folder")["format"] == "offload"
    shardwright.run("verify", "--full", tmp_path / "folder")


def test_accelerate_reads_what_is_written(shardwright, tmp_path, tensors):
    """The same files, byte for byte, as accelerate's own."""
    save_file(tensors, tmp_path / "a.safetensors")
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "ours", "--to", "offload")
    loader = OffloadedWeightsLoader(save_folder=tmp_path / "ours")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of memory that cannot be written
        same({name: loader[name] for name in tensors}, tensors)
    offload_state_dict(tmp_path / "theirs", {name: tensors[name] for name in loader})
    assert {f.name: f.read_bytes() for f in (tmp_path / "ours").iterdir()} == {f.name: f.read_bytes() for f in (tmp_path / "theirs").iterdir()}


def test_pointers_are_followed_and_cast(shardwright, tmp_path, rng, monkeypatch):
    """Absolute, from the working directory, and from the folder; as accelerate reads them, with the cast that an entry asks for."""
    values = torch.from_numpy(rng.standard_normal((4, 3))).to(torch.bfloat16)
    (tmp_path / "model").mkdir()
    (tmp_path / "folder").mkdir()
    save_file({"stored": values, "m": values[:2].clone()}, tmp_path / "model" / "a.safetensors")
    save_file({"own": values[1:].clone()}, tmp_path / "folder" / "own.safetensors")
    own = torch.arange(3.0)
    offload_state_dict(tmp_path / "folder", {"own.weight": own})
    index = json.loads((tmp_path / "folder" / "index.json").read_text())
    index |= {"absolute": {"safetensors_file": str(tmp_path / "model" / "a.safetensors"), "weight_name": "stored", "dtype": "float32"},
              "again": {"safetensors_file": str(tmp_path / "model" / "a.safetensors"), "weight_name": "stored", "dtype": "float32"},
              "m": {"safetensors_file": "model/a.safetensors"},
              "own": {"safetensors_file": str(tmp_path / "folder" / "own.safetensors")}}
    (tmp_path / "folder" / "index.json").write_text(json.dumps(index))
    monkeypatch.chdir(tmp_path)
    loader = OffloadedWeightsLoader(save_folder="folder")
    done = shardwright.run("copy", "folder", "out.safetensors", cwd=tmp_path)
    found = load_file("out.safetensors")
    assert "again" not in found, "two entries of one place are one tensor"
    same({name: found[name] for name in sorted(found)}, {name: loader[name] for name in sorted(found)})
    assert torch.equal(found["absolute"], values.float()) and torch.equal(found["own.weight"], own), done.stderr
    with sw.open("folder") as opened:
        assert opened.ties == {"again": "absolute"}
        assert np.array_equal(opened["absolute"][1:2], values[1:2].float().numpy())
    (tmp_path / "model" / "a.safetensors").rename(tmp_path / "gone")
    error = shardwright.run("ls", "folder", code=3, cwd=tmp_path).stderr
    assert "model/a.safetensors" in error


def test_stale_folder_is_told(shardwright, tmp_path):
    """accelerate does not write a folder anew that has an index: files that do not fit it are another model's."""
    offload_state_dict(tmp_path / "folder", {"a": torch.ones(10)})
    (tmp_path / "folder" / "a.dat").write_bytes(bytes(16))
    error = shardwright.run("copy", tmp_path / "folder", tmp_path / "out", code=4).stderr
    assert "a.dat" in error and "16 bytes" in error and "40 bytes" in error
    assert not (tmp_path / "out").exists()


def test_replacing_a_folder_takes_its_own_files_only(shardwright, tmp_path, tensors):
    save_file(tensors, tmp_path / "a.safetensors")
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "folder", "--to", "offload")
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    raw.write(tmp_path / "b.safetensors", {"only": ("U8", [2], b"ab")})
    shardwright.copy(tmp_path / "b.safetensors", tmp_path / "folder", "--to", "offload", "--overwrite")
    assert sorted(f.name for f in (tmp_path / "folder").iterdir()) == ["index.json", "notes.txt", "only.dat"]
