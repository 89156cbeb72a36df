"""Saving arrays of every kind: what lies askew is packed, what cannot be saved is refused, and other libraries read it."""
import json
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import pytest

import shardwright as sw
from safetensors import numpy as peer


def back(path) -> dict:
    with sw.open(path) as checkpoint:
        return checkpoint.load()


def same(a, b) -> bool:
    return a.shape == b.shape and a.dtype.name == b.dtype.name and a.tobytes() == np.ascontiguousarray(b, b.dtype.newbyteorder("=")).tobytes()


def test_safetensors_reads_it(tmp_path, weights):
    plain = {name: array for name, array in weights.items() if name not in ("f8", "f8b", "bf16")}
    summary = sw.save(tmp_path / "a.safetensors", plain, metadata={"made": "by a test"})
    read = peer.load_file(tmp_path / "a.safetensors")
    assert set(read) == set(plain) and all(same(read[name], array) for name, array in plain.items())
    assert (summary.tensors, summary.shards, summary.format) == (len(plain), 1, "safetensors")
    assert summary.bytes_written == (tmp_path / "a.safetensors").stat().st_size == summary.files[0][1]
    assert sw.open(tmp_path / "a.safetensors").metadata["made"] == "by a test"


def test_keras_layout_is_hdf5(tmp_path, rng):
    h5py = pytest.importorskip("h5py")
    arrays = {f"layers/d{i}/vars/{j}": rng.standard_normal((i + 1, 4)).astype("f4") for i in range(3) for j in range(2)}
    sw.save(tmp_path / "m.weights.h5", arrays)
    with h5py.File(tmp_path / "m.weights.h5") as file:
        assert all(np.array_equal(file[name][()], array) for name, array in arrays.items())
    sw.save(tmp_path / "m.weights.json", arrays, max_shard_size=40)
    index = json.loads((tmp_path / "m.weights.json").read_text())
    assert len(index["weight_map"]) == 3 and sw.open(tmp_path / "m.weights.json").format == "keras-sharded"


def askew(rng):
    """Layouts that are not C order, and what a naive writer makes of each."""
    a = rng.standard_normal((6, 5, 4)).astype("f4")
    records = np.zeros(7, dtype=[("a", "u1"), ("b", "<f4"), ("c", "<f8")])
    records["b"] = rng.standard_normal(7)
    records["c"] = rng.standard_normal(7)
    return {
        "transposed": a.T, "F order": np.asfortranarray(a), "swapped axes": a.swapaxes(0, 1), "stepped": a[::2, 1:, ::3],
        "reversed": a[::-1, :, ::-1], "broadcast": np.broadcast_to(a[:1, :, :1], (3, 5, 2)), "one column": a[:, 2, 3],
        "big-endian": a.astype(">f4"), "big-endian transposed": a.astype(">f4").T, "big-endian complex": (a + 1j).astype(">c8")[::2],
        "big-endian short": np.arange(9, dtype=">i2"), "record field": records["b"], "record field double": records["c"][::-2],
        "unaligned": np.frombuffer(b"x" + a.tobytes(), "f4", offset=1).reshape(a.shape), "bf16 transposed": a.astype(ml_dtypes.bfloat16).T,
        "float8 reversed": a.astype(ml_dtypes.float8_e5m2)[::-1], "bool stepped": (a > 0)[..., ::2], "scalar view": a[1, 2, 3:4].reshape(()),
        "NumPy scalar": np.float32(1.5), "empty transposed": np.zeros((0, 3), "f4").T, "sliding": np.lib.stride_tricks.sliding_window_view(a[0, :, 0], 3),
    }


@pytest.mark.parametrize("memory", ["256MiB", "1MiB"])
@pytest.mark.parametrize("target", ["a.safetensors", "a.weights.h5"])
def test_what_lies_askew_is_packed(tmp_path, rng, target, memory):
    arrays = {f"{name}/vars/0" if "h5" in target else name: array for name, array in askew(rng).items() if "h5" not in target or "complex" not in name}
    sw.save(tmp_path / target, arrays, memory=memory)
    loaded = back(tmp_path / target)
    assert [name for name, array in arrays.items() if not same(loaded[name], np.asarray(array))] == []


def test_large_transposed_arrays_are_packed_in_parts(tmp_path, rng):
    """Several parts a tensor, cut where no stride is 1."""
    a = rng.standard_normal((1500, 1100)).astype("f4")
    sw.save(tmp_path / "a.safetensors", {"t": a.T, "r": a[::-1, ::-2], "be": a.astype(">f4").T}, memory="1MiB")
    loaded = back(tmp_path / "a.safetensors")
    assert np.array_equal(loaded["t"], a.T) and np.array_equal(loaded["r"], a[::-1, ::-2]) and np.array_equal(loaded["be"], a.T)


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
@pytest.mark.parametrize("shape", [(8,), (3, 4), (5, 7, 4), (4, 3)])
def test_packed_types(tmp_path, rng, name, shape):
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = rng.integers(0, 16 if "4" in name else 64, shape).astype("u1").view(dtype)
    sw.save(tmp_path / "a.safetensors", {"w": array, "t": array.T if array.ndim > 1 else array[::-1]})
    assert (tmp_path / "a.safetensors").stat().st_size < 400 + 2 * array.size
    loaded = back(tmp_path / "a.safetensors")
    assert same(loaded["w"], array)
    assert loaded["t"].tobytes() == (array.T if array.ndim > 1 else array[::-1]).tobytes()
    tensor = sw.open(tmp_path / "a.safetensors")["w"]
    assert tensor.nbytes == array.size * (4 if "4" in name else 6) // 8 and tensor.dtype == dtype
    assert tensor[..., 1].tobytes() == array[..., 1].tobytes()
    filled = np.zeros(shape, dtype)
    sw.open(tmp_path / "a.safetensors").load(["w"], {"w": filled})
    assert filled.tobytes() == array.tobytes()


def test_packed_types_need_whole_bytes(tmp_path):
    with pytest.raises(sw.InvalidArgumentError) as raised:
        sw.save(tmp_path / "a.safetensors", {"odd": np.zeros(3, ml_dtypes.float4_e2m1fn)})
    assert raised.value.tensor == "odd" and not list(tmp_path.iterdir())


@pytest.mark.parametrize("value,error", [
    (np.array(["a"]), NotImplementedError), (np.array([None]), NotImplementedError), (np.zeros(2, "c16"), NotImplementedError),
    (np.zeros(2, ml_dtypes.int4), NotImplementedError), (np.zeros(2, "M8[s]"), NotImplementedError), (np.zeros(2, [("a", "f4")]), NotImplementedError),
    (np.ma.masked_array([1.0, 2.0], [True, False]), NotImplementedError), ([1.0, 2.0], ValueError), (3.0, ValueError), (None, ValueError),
    ("text", ValueError), ({"a": 1}, ValueError),
], ids=lambda value: type(value).__name__ if isinstance(value, type) else str(getattr(value, "dtype", value))[:20])
def test_what_cannot_be_saved_is_refused_by_name(tmp_path, value, error):
    with pytest.raises(error) as raised:
        sw.save(tmp_path / "a.safetensors", {"good": np.zeros(1), "bad": value})
    assert isinstance(raised.value, sw.Error) and raised.value.tensor == "bad"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size,shards", [(400, 10), ("400B", 10), ("1KB", 5), ("1KiB", 5), (np.int64(800), 5), (None, 1)])
def test_shard_sizes_are_bytes_or_text(tmp_path, size, shards):
    arrays = {f"t{i}": np.full(100, i, "f4") for i in range(10)}
    assert sw.save(tmp_path / "m", arrays, max_shard_size=size).shards == shards
    loaded = back(tmp_path / "m")
    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())


@pytest.mark.parametrize("size", [1.5, True, -1, "5 apples", "", [1], 2**64, np.array([5])], ids=str)
def test_other_sizes_are_refused(tmp_path, size):
    with pytest.raises(sw.InvalidArgumentError):
        sw.save(tmp_path / "m", {"a": np.zeros(1)}, max_shard_size=size)
    with pytest.raises(sw.InvalidArgumentError):
        sw.save(tmp_path / "m", {"a": np.zeros(1)}, memory=size)


@pytest.mark.parametrize("size", [0, "0", "0.1B"])
def test_shards_of_no_bytes_are_refused(tmp_path, size):
    with pytest.raises(sw.InvalidArgumentError, match="no bytes") as raised:
        sw.save(tmp_path / "m", {"a": np.zeros(1)}, max_shard_size=size)
    assert "--" not in str(raised.value) and not list(tmp_path.iterdir())


def test_format_of_a_directory(tmp_path):
    arrays = {"layers/a/vars/0": np.arange(6, dtype="f4"), "layers/b/vars/0": np.ones(3)}
    assert sw.save(tmp_path / "k", arrays, format="keras-sharded", max_shard_size=24).format == "keras-sharded"
    assert sorted(path.name for path in (tmp_path / "k").iterdir()) == ["model.weights.json", "model_00000.weights.h5", "model_00001.weights.h5"]
    assert sw.save(tmp_path / "s", arrays).format == sw.save(tmp_path / "t", arrays, format="safetensors").format == "safetensors"
    assert all(same(back(path)[name], array) for path in (tmp_path / "k" / "model.weights.json", tmp_path / "s") for name, array in arrays.items())
    with pytest.raises(sw.InvalidArgumentError, match="unknown format") as raised:
        sw.save(tmp_path / "x", arrays, format="safetensor")
    assert raised.value.hint == "did you mean 'safetensors'?"
    with pytest.raises(sw.UnsupportedError, match="only be read"):
        sw.save(tmp_path / "x", arrays, format="hdf5")
    with pytest.raises(sw.InvalidArgumentError):
        sw.save(tmp_path / "x.safetensors", arrays, format="keras-h5")
    assert not (tmp_path / "x").exists()


def test_a_single_file_has_no_shards(tmp_path):
    with pytest.raises(sw.InvalidArgumentError, match="no shards") as raised:
        sw.save(tmp_path / "m.safetensors", {"a": np.zeros(1)}, max_shard_size="1GB")
    assert "--" not in str(raised.value) and "max_shard_size" in raised.value.hint


def test_nothing_is_overwritten_unasked(tmp_path):
    path = tmp_path / "m.safetensors"
    sw.save(path, {"a": np.zeros(1)})
    before = path.read_bytes()
    with pytest.raises(FileExistsError) as raised:
        sw.save(path, {"a": np.ones(1)})
    assert raised.value.hint == "overwrite=True replaces it" and path.read_bytes() == before
    sw.save(path, {"a": np.ones(1)}, overwrite=True)
    assert back(path)["a"].tolist() == [1]
    assert sw.save(tmp_path / "n.safetensors", {"a": np.ones(1)}, dry_run=True).files == [("n.safetensors", path.stat().st_size)]
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_stale_shards_go(tmp_path):
    arrays = {f"t{i}": np.full(100, i, "f4") for i in range(10)}
    sw.save(tmp_path / "m", arrays, max_shard_size=400)
    (tmp_path / "m" / "config.json").write_text("{}")
    sw.save(tmp_path / "m", arrays, overwrite=True)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["config.json", "model.safetensors"]


def test_cast_and_manifest(tmp_path, rng):
    array = rng.standard_normal(100).astype("f4")
    sw.save(tmp_path / "m", {"a": array, "i": np.arange(3)}, dtype="bf16", manifest=True)
    loaded = back(tmp_path / "m")
    assert same(loaded["a"], array.astype(ml_dtypes.bfloat16)) and loaded["i"].dtype == np.int64
    assert sw.verify(tmp_path / "m", full=True).manifest
    with pytest.raises(sw.InvalidArgumentError):
        sw.save(tmp_path / "n", {"a": array}, dtype=np.int32)


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, {"a": None}, {"a": "\udc80"}, {"\udc80": "a"}], ids=str)
def test_metadata_is_text(tmp_path, metadata):
    with pytest.raises(sw.InvalidArgumentError):
        sw.save(tmp_path / "m.safetensors", {"a": np.zeros(1)}, metadata=metadata)


def test_names(tmp_path):
    arrays = {"ünïcode": np.zeros(1), "a b/c.d": np.ones(1), "": np.full(1, 2.0)}
    sw.save(tmp_path / "m.safetensors", arrays)
    assert set(back(tmp_path / "m.safetensors")) == set(arrays)
    for wrong in [[("a", np.zeros(1)), ("a", np.zeros(1))], [("a",)], [(1, np.zeros(1))], ["ab"]]:
        with pytest.raises(sw.InvalidArgumentError):
            sw.save(tmp_path / "n.safetensors", wrong)
    with pytest.raises(sw.InvalidArgumentError):
        sw.save(tmp_path / "n.safetensors", {"a": np.zeros(1)}, ties={"b": "c"})
    assert len(list(tmp_path.iterdir())) == 1


# ---- producers

def test_producers_are_called_once_each_in_order_and_hold_one_array(tmp_path, rng):
    values = {f"t{i}": rng.standard_normal((300, 500)).astype("f4") for i in range(8)}
    calls, dropped = [], []

    def maker(name):
        def make():
            assert dropped == calls, "the array before is still held"
            calls.append(name)
            array = values[name].copy()
            weakref.finalize(array, dropped.append, name)
            return array
        return make

    sw.save(tmp_path / "m", ((name, v.shape, "float32", maker(name)) for name, v in values.items()), max_shard_size="1200kB", memory="1MiB")
    assert sorted(calls) == sorted(values)
    loaded = back(tmp_path / "m")
    assert all(np.array_equal(loaded[name], v) for name, v in values.items())


def test_producers_of_boxes(tmp_path, rng):
    value = rng.standard_normal((700, 900)).astype("f4")
    covered = np.zeros(value.shape, int)

    def box(start, stop):
        part = tuple(map(slice, start, stop))
        covered[part] += 1
        return value[part]

    sw.save(tmp_path / "m.safetensors", {"w": sw.Producer(value.shape, np.float32, box=box), "x": value[:2]}, memory="1MiB")
    assert (covered == 1).all() and np.array_equal(back(tmp_path / "m.safetensors")["w"], value)
    covered[:] = 0  # and into one compressed chunk, larger than what is asked for at once
    sw.save(tmp_path / "c", {"w": sw.Producer(value.shape, np.float32, box=box)}, format="orbax", options={"compression": "zstd"}, memory="4MiB")
    assert (covered == 1).all() and np.array_equal(sw.open(tmp_path / "c").load()["w"], value)


@pytest.mark.parametrize("shape,dtype", [((), "float32"), ((0, 4), "float32"), ((1,), "bool"), ((2, 4), "float4_e2m1fn")])
def test_small_producers(tmp_path, shape, dtype):
    value = np.ones(shape, getattr(ml_dtypes, dtype, dtype))
    sw.save(tmp_path / "m.safetensors", [("w", shape, dtype, lambda: value)])
    assert same(back(tmp_path / "m.safetensors")["w"], value)


@pytest.mark.parametrize("wrong", [np.zeros((2, 3), "f8"), np.zeros((3, 2), "f4"), np.zeros(6, "f4"), None, [[0.0] * 3] * 2], ids=["dtype", "shape", "flat", "none", "list"])
def test_a_producer_that_breaks_its_word(tmp_path, wrong):
    with pytest.raises(sw.InvalidArgumentError) as raised:
        sw.save(tmp_path / "m.safetensors", [("a", (1,), "float64", lambda: np.zeros(1)), ("w", (2, 3), "float32", lambda: wrong)])
    assert raised.value.tensor == "w" and not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [0.5, -1, 2**63, 2**64, "2", None])
def test_shapes_and_starts_are_whole_numbers(tmp_path, number):
    """Half an element was once taken for none."""
    part = np.zeros(4, "f4")
    for value in (sw.Producer((number,), "float32", whole=lambda: part), sw.Sharded((number,), "float32", []), sw.Sharded((4,), "float32", [((number,), part)])):
        with pytest.raises(sw.InvalidArgumentError, match="whole numbers") as raised:
            sw.save(tmp_path / "m.safetensors", {"w": value})
        assert raised.value.tensor == "w"
    with pytest.raises(sw.InvalidArgumentError, match="whole numbers"):
        sw.empty((number,))
    with pytest.raises(sw.InvalidArgumentError, match="so many"):
        sw.save(tmp_path / "m.safetensors", {"w": sw.Producer((2**62,), "float32", whole=lambda: part)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["overwrite", "strict", "manifest", "dry_run"])
def test_options_are_true_or_false_as_python_has_it(tmp_path, option):
    arrays = {"a": np.zeros(1)}
    sw.save(tmp_path / "a.safetensors", arrays, **{option: 0})
    sw.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors", **{option: np.True_})


def test_what_a_producer_raises_is_raised(tmp_path):
    class Mine(Exception):
        pass

    def fail():
        raise Mine("out of ideas")
    with pytest.raises(Mine, match="out of ideas"):
        sw.save(tmp_path / "m", [(f"t{i}", (100_000,), "float32", (lambda: np.zeros(100_000, "f4")) if i < 5 else fail) for i in range(9)],
                max_shard_size="1MB")
    assert not list(tmp_path.iterdir())


def test_sharded_arrays(tmp_path, rng):
    value = rng.standard_normal((6, 8)).astype("f4")
    pieces = [((r, c), np.asfortranarray(value[r:r + 3, c:c + 4])) for r in (0, 3) for c in (0, 4)]
    sw.save(tmp_path / "m.safetensors", {"w": sw.Sharded((6, 8), "float32", pieces)})
    assert np.array_equal(back(tmp_path / "m.safetensors")["w"], value)
    for wrong in (pieces[:3], [*pieces, ((2, 2), value[:2, :2])]):
        with pytest.raises(ValueError) as raised:
            sw.save(tmp_path / "n.safetensors", {"w": sw.Sharded((6, 8), "float32", wrong)})
        assert raised.value.tensor == "w"


# ---- lazy tensors, and the checkpoint that they come from

def test_lazy_tensors_are_read_while_they_are_written(tmp_path, rng):
    arrays = {"a": rng.standard_normal((500, 700)).astype("f4"), "b": np.arange(5), "n": np.zeros((0, 2)), "s": np.array(2.5),
              "p": rng.integers(0, 16, (3, 4)).astype("u1").view(ml_dtypes.float4_e2m1fn)}
    sw.save(tmp_path / "a.safetensors", arrays)
    source = sw.open(tmp_path / "a.safetensors")
    sw.save(tmp_path / "b", {**source, "new": np.ones(3)}, max_shard_size="300kB", memory="1MiB")
    loaded = back(tmp_path / "b")
    assert all(same(loaded[name], array) for name, array in arrays.items()) and loaded["new"].tolist() == [1] * 3


def test_a_checkpoint_may_be_replaced_by_what_is_read_from_it(tmp_path, rng):
    arrays = {"a": rng.standard_normal((50, 70)), "b": np.arange(5)}
    path = tmp_path / "a.safetensors"
    sw.save(path, arrays)
    with sw.open(path) as checkpoint:
        sw.save(path, {"renamed": checkpoint["a"], "c": np.ones(1)}, overwrite=True)
    loaded = back(path)
    assert set(loaded) == {"renamed", "c"} and np.array_equal(loaded["renamed"], arrays["a"])


# ---- several writers of one directory

@pytest.fixture
def slow_writer(tmp_path):
    """Another writer, at work on a.safetensors for a while."""
    begun = threading.Event()

    def make():
        begun.set()
        time.sleep(0.5)
        return np.ones(4, "f4")
    thread = threading.Thread(target=lambda: sw.save(tmp_path / "a.safetensors", [("x", (4,), "float32", make)]))
    thread.start()
    assert begun.wait(30)
    yield
    thread.join()


def test_a_second_writer_waits_its_turn(tmp_path, slow_writer):
    sw.save(tmp_path / "b.safetensors", {"y": np.zeros(3)})
    assert (tmp_path / "a.safetensors").exists() and list(back(tmp_path / "b.safetensors")) == ["y"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_what_the_first_writer_made_is_seen_by_the_second(tmp_path, slow_writer):
    with pytest.raises(sw.AlreadyExistsError):
        sw.save(tmp_path / "a.safetensors", {"y": np.zeros(3)})
    assert list(back(tmp_path / "a.safetensors")) == ["x"]


def test_waiting_can_be_stopped(tmp_path, slow_writer):
    phases = []
    with pytest.raises(sw.AbortedError):
        sw.save(tmp_path / "b.safetensors", {"y": np.zeros(3)}, progress=lambda phase, done, total: phases.append(phase) or False)
    assert phases == ["wait"] and not (tmp_path / "b.safetensors").exists()


def test_many_writers_at_once(tmp_path):
    together, failed = threading.Barrier(5), []

    def write(i):
        together.wait()
        try:
            sw.save(tmp_path / f"{i}.safetensors", {"x": np.full(3, i)}, manifest=True)
        except Exception as error:
            failed.append(error)
    threads = [threading.Thread(target=write, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{i}.safetensors" for i in range(5)] + ["shardwright.manifest.json"]
    assert all(sw.verify(tmp_path / f"{i}.safetensors", full=True).manifest for i in range(5))
