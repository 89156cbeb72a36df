"""copy, verify, diff, hash, info, reindex: the same answers as the program's."""
import json
import resource

import ml_dtypes
import numpy as np
import pytest

import shardwright as sw


@pytest.fixture
def model(tmp_path, weights):
    sw.save(tmp_path / "model", weights, max_shard_size=300, metadata={"a": "b"}, ties={"alias": "w"})
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


def test_info_is_the_programs(model, shardwright):
    info, theirs = sw.info(model), shardwright.json("info", model)
    assert (info.path, info.format, info.tensors, info.parameters, info.nbytes, info.ties, info.metadata) == tuple(
        theirs[key] for key in ("path", "format", "tensors", "parameters", "nbytes", "ties", "metadata"))
    assert {name: {"tensors": tensors, "nbytes": size} for name, (tensors, size) in info.dtypes.items()} == theirs["dtypes"]
    assert [{"file": file, "tensors": tensors, "nbytes": size} for file, tensors, size in info.shards] == theirs["shards"]
    assert info.side_files == ["config.json"]


def test_copy_is_the_programs(model, shardwright, tmp_path):
    options = dict(max_shard_size="1KB", dtype="bf16", include=["w", "half", "f8*", "alias"], exclude=["f8b"], rename={"^h": "H"})
    summary = sw.copy(model, tmp_path / "ours", **options)
    (tmp_path / "rename.json").write_text('{"^h": "H"}')
    theirs = shardwright.copy(model, tmp_path / "theirs", "--max-shard-size", "1KB", "--dtype", "bf16", "--include", "w", "--include", "half",
                              "--include", "f8*", "--include", "alias", "--exclude", "f8b", "--rename", tmp_path / "rename.json")
    ours = {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()}
    assert ours == {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    assert "config.json" in ours
    for key in ("format", "tensors", "shards", "bytes_read", "bytes_written", "warnings"):
        assert getattr(summary, key) == theirs[key], key
    files = [name for name, _ in summary.files]
    assert files == ["config.json", "model.safetensors"] and sorted(files) == sorted(ours)
    assert all(size in (None, len(ours[name])) for name, size in summary.files)
    with sw.open(tmp_path / "ours") as checkpoint:
        assert set(checkpoint) == {"w", "Half", "f8", "alias"} and checkpoint["w"].dtype == ml_dtypes.bfloat16


def test_copy_onto_itself_and_dry_run(model, tmp_path):
    planned = sw.copy(model, model, max_shard_size="1GB", dry_run=True)
    assert planned.shards == 1 and len(list(model.glob("*.safetensors"))) > 1
    planned = [name for name, _ in sw.copy(model, tmp_path / "out", max_shard_size="1KB", manifest=True, dry_run=True).files]
    assert not (tmp_path / "out").exists()
    sw.copy(model, tmp_path / "out", max_shard_size="1KB", manifest=True)
    assert sorted(planned) == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert planned[-1] == "model.safetensors.index.json" and "config.json" in planned
    assert [name for name, _ in sw.copy(model, tmp_path / "m.weights.json", dry_run=True).files] == ["m_00000.weights.h5", "m.weights.json"]
    sw.copy(model, model, max_shard_size="1GB")
    assert [path.name for path in model.glob("*.safetensors")] == ["model.safetensors"]


def test_verify(model, shardwright):
    assert sw.verify(model) and sw.verify(model, full=True).bytes_checked > 0
    shard = sorted(model.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-1])
    found = sw.verify(model)
    assert not found and all(isinstance(finding, sw.Error) for finding in found.findings)
    theirs = [line for line in shardwright.lines("verify", model, code=1) if line["type"] == "finding"]
    assert [(f.code, f.path, f.tensor, f.offset, f.message) for f in found.findings] == [
        tuple(line[key] for key in ("code", "path", "tensor", "offset", "message")) for line in theirs]
    with pytest.raises(sw.NotFoundError):
        sw.verify(model / "nothing")


def test_verify_says_what_memory_it_took(tmp_path):
    sw.save(tmp_path / "a.safetensors", {"w": np.ones((32 << 20) // 4, "f4")})
    assert 1 << 20 <= sw.verify(tmp_path / "a.safetensors", full=True, memory="16MiB").peak_memory_bytes <= 80 << 20


def test_hashes_and_manifest(model, shardwright, tmp_path):
    hashes = sw.hash(model, write=True)
    theirs = shardwright.json("hash", model)
    assert [(name, *row) for name, row in hashes.items()] == [(t["name"], t["dtype"], tuple(t["shape"]), t["hash"]) for t in theirs]
    sw.copy(model, tmp_path / "one.safetensors")
    assert sw.hash(tmp_path / "one.safetensors") == hashes
    assert sw.verify(model, full=True).manifest
    assert sw.verify(model, against=model / "shardwright.manifest.json")


def test_diff(model, tmp_path, weights):
    sw.copy(model, tmp_path / "same.safetensors")
    assert sw.diff(model, tmp_path / "same.safetensors") == []
    other = dict(weights, w=weights["w"] + np.float32(0.5), half=weights["half"].astype("f4"), new=np.ones(1))
    del other["mask"]
    other["bytes"] = other["bytes"].reshape(1, 11)
    sw.save(tmp_path / "other.safetensors", other, ties={"alias": "double"})
    rows = {row.name: row for row in sw.diff(model, tmp_path / "other.safetensors")}
    assert {name: row.change for name, row in rows.items()} == {"w": "value", "half": "dtype", "new": "added", "mask": "removed", "bytes": "shape",
                                                                "alias": rows["alias"].change}
    assert rows["w"].max_abs_diff == pytest.approx(0.5, abs=1e-6)
    assert "w" not in {row.name for row in sw.diff(model, tmp_path / "other.safetensors", atol=0.6)}
    assert "w" not in {row.name for row in sw.diff(model, tmp_path / "other.safetensors", names_only=True)}


def test_paths_that_no_system_has(tmp_path):
    for path in ("x" * 5000, "x" * 300):
        for job in (sw.open, sw.verify, sw.hash, sw.info, sw.files_for, sw.reindex):
            with pytest.raises(sw.NotFoundError):
                job(tmp_path / path)


def test_names_that_are_not_text(tmp_path):
    """An index of Keras could not be read back with them."""
    sw.save(tmp_path / "a.weights.h5", {"\udcff": np.zeros(1), "b": np.ones(1)})
    with pytest.raises(sw.UnsupportedError, match="UTF-8"):
        sw.copy(tmp_path / "a.weights.h5", tmp_path / "a.weights.json")
    assert not (tmp_path / "a.weights.json").exists()


def test_as_many_threads_as_the_system_gives(shardwright, model, tmp_path):
    """The room for their stacks is used up long before."""
    done = shardwright.run("copy", "--threads", 1000, model, tmp_path / "b.safetensors",
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)))
    assert done.returncode == 0 and sw.diff(model, tmp_path / "b.safetensors") == []


def test_reindex(model):
    index = model / "model.safetensors.index.json"
    before = json.loads(index.read_text())["weight_map"]
    index.unlink()
    assert sw.reindex(model, dry_run=True).tensors and not index.exists()
    done = sw.reindex(model)
    assert done.shards == len(set(before.values())) and json.loads(index.read_text())["weight_map"] == before


def test_formats(shardwright):
    theirs = shardwright.json("formats")
    assert [f.name for f in sw.formats()] == [f["name"] for f in theirs]
    assert {f.name for f in sw.formats() if f.writable} >= {"safetensors", "keras-h5", "keras-sharded"}
