"""files_for: which files hold given tensors, and which of them are there."""
import json

import numpy as np
import pytest

import shardwright as sw


@pytest.fixture
def hub(tmp_path):
    sw.save(tmp_path / "hub", {f"t{i}": np.full(100, i, "f4") for i in range(5)}, max_shard_size=800)
    return tmp_path / "hub"


@pytest.fixture
def keras(tmp_path):
    path = tmp_path / "k" / "m.weights.json"
    path.parent.mkdir()
    sw.save(path, {f"layers/d{i}/vars/{j}": np.full((10, 10), i, "f4") for i in range(3) for j in range(2)}, max_shard_size=1000)
    return path


def shard(n, of=3):
    return f"model-{n:05}-of-{of:05}.safetensors"


def test_by_name(hub):
    index = hub / "model.safetensors.index.json"
    found = sw.files_for(index)
    assert found.files == {shard(1): ["t0", "t1"], shard(2): ["t2", "t3"], shard(3): ["t4"]}
    assert found.missing == [] and found.whole == {}
    assert sw.files_for(index, ["t4", "t1", "t4"]).files == {shard(1): ["t1"], shard(3): ["t4"]}
    assert sw.files_for(index, []).files == {}
    with pytest.raises(KeyError) as raised:
        sw.files_for(index, ["t1", "t7", "u"])
    assert "'t7', 'u'" in str(raised.value) and raised.value.tensor == "t7"
    sw.save(hub, {"model.norm.weight": np.ones(3), "model.norm.bias": np.ones(3)}, max_shard_size=12, overwrite=True)
    with pytest.raises(KeyError, match="model.norm.weight"):
        sw.files_for(hub, ["model.norm.wieght"])


def test_of_pytorch_files(tmp_path):
    sw.save(tmp_path / "bin", {f"t{i}": np.full(100, i, "f4") for i in range(5)}, format="torch", max_shard_size=800)
    found = sw.files_for(tmp_path / "bin", ["t4", "t1"])
    first, last = (f"pytorch_model-{n:05}-of-00003.bin" for n in (1, 3))
    assert found.files == {first: ["t1"], last: ["t4"]} and list(found.whole) == [first, last]
    (tmp_path / "bin" / last).write_bytes((tmp_path / "bin" / last).read_bytes()[:-1])
    found = sw.files_for(tmp_path / "bin")
    assert list(found.cut_short) == found.to_fetch == [last]


def test_the_index_alone_is_enough(hub, tmp_path):
    (tmp_path / "new").mkdir()
    (hub / "model.safetensors.index.json").rename(tmp_path / "new" / "model.safetensors.index.json")
    found = sw.files_for(tmp_path / "new", ["t3"])
    assert found.missing == found.to_fetch == [shard(2)]


def test_what_a_download_left(hub):
    sizes = {path.name: path.stat().st_size for path in hub.glob("*.safetensors")}
    assert sw.files_for(hub).whole == sizes and sw.files_for(hub).to_fetch == []
    (hub / shard(1)).unlink()
    whole = (hub / shard(2)).read_bytes()
    for length in (0, 5, 8, 50, len(whole) - 1):
        (hub / shard(2)).write_bytes(whole[:length])
        found = sw.files_for(hub)
        within_header = length < 8 + int.from_bytes(whole[:8], "little")
        assert found.cut_short == {shard(2): (length, None if within_header else len(whole))}, length
        assert found.missing == [shard(1)] and list(found.whole) == [shard(3)] and found.to_fetch == [shard(1), shard(2)]
    for other in (b"version https://git-lfs.github.com/spec/v1\n" + b"x" * 100, bytes(len(whole)), b"<!DOCTYPE html>" + b" " * 500):
        (hub / shard(2)).write_bytes(other)
        found = sw.files_for(hub)
        assert list(found.wrong) == [shard(2)] and found.to_fetch == [shard(1), shard(2)]
    (hub / shard(2)).write_bytes(whole[:-10])
    with (hub / shard(2)).open("ab") as file:  # resumed
        file.write(whole[-10:])
    assert sw.files_for(hub).to_fetch == [shard(1)]
    assert sw.files_for(hub / "model.safetensors.index.json", ["t4"], hub).to_fetch == []


def test_keras_sets(keras):
    index = json.loads(keras.read_text())["weight_map"]
    found = sw.files_for(keras)
    assert {name for groups in found.files.values() for name in groups} == {key.removeprefix("/") for key in index}
    assert set(found.files) == {file for files in index.values() for file in ([files] if isinstance(files, str) else files)}
    files = index["/layers/d1/vars"]
    expected = set([files] if isinstance(files, str) else files)
    for name in ("layers/d1/vars/0", "/layers/d1/vars", "layers/d1/vars"):
        assert set(sw.files_for(keras, [name]).files) == expected
    found = sw.files_for(keras.parent)
    assert found.to_fetch == [] and len(found.whole) == len(found.files)
    first = next(iter(found.files))
    whole = (keras.parent / first).read_bytes()
    for length in (0, 30, 100, len(whole) - 1):
        (keras.parent / first).write_bytes(whole[:length])
        assert sw.files_for(keras.parent).cut_short == {first: (length, None if length < 64 else len(whole))}
    (keras.parent / first).write_bytes(b"x" * 2000)
    assert list(sw.files_for(keras.parent).wrong) == [first]


def test_names_as_open_gives_them(tmp_path):
    names = ["lm_head.weight", "a/b", "vars", "x/vars/y/z"]
    sw.save(tmp_path / "m.weights.json", {name: np.zeros(4) for name in names}, max_shard_size=1)
    with sw.open(tmp_path / "m.weights.json") as checkpoint:
        for name in checkpoint:
            assert list(sw.files_for(tmp_path / "m.weights.json", [name]).files) == [checkpoint[name].files[0].rpartition("/")[2]], name


@pytest.mark.parametrize("file", ["../up.safetensors", "/etc/passwd.safetensors", "a/../../b.safetensors", 7, "model.bin"], ids=str)
def test_hostile_indexes(tmp_path, file):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(sw.CorruptError):
        sw.files_for(tmp_path)


def test_no_index_or_two(tmp_path):
    with pytest.raises(sw.NotFoundError):
        sw.files_for(tmp_path)
    with pytest.raises(sw.NotFoundError):
        sw.files_for(tmp_path / "model.safetensors.index.json")
    for name in ("a.weights.json", "b.weights.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(sw.InvalidArgumentError, match="more than one"):
        sw.files_for(tmp_path)
