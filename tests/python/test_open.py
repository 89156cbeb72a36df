"""Opened checkpoints: what is there, slices against NumPy's, and that only what is asked for is read."""
import ml_dtypes
import numpy as np
import pytest

import shardwright as sw


def same(a, b) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture(params=["x.safetensors", "x", "x.weights.h5", "x.weights.json"])
def stored(request, tmp_path, weights):
    """A checkpoint of each layout, with names that every format has; and its arrays."""
    keras = "weights" in request.param
    arrays = {f"layers/{name}/vars/0" if keras else name: array for name, array in weights.items() if not keras or name != "complex"}
    sharded = request.param in ("x", "x.weights.json")
    sw.save(tmp_path / request.param, arrays, max_shard_size=600 if sharded else None)
    return tmp_path / request.param, arrays


def test_every_tensor_is_what_was_saved(stored):
    path, arrays = stored
    with sw.open(path) as checkpoint:
        assert set(checkpoint) == set(arrays) and len(checkpoint) == len(arrays)
        for name, array in arrays.items():
            tensor = checkpoint[name]
            assert (tensor.name, tensor.shape, tensor.dtype, tensor.nbytes) == (name, array.shape, array.dtype, array.nbytes)
            assert (tensor.ndim, tensor.size) == (array.ndim, array.size)
            assert same(np.asarray(tensor), array)
        loaded = checkpoint.load()
        assert list(loaded) == list(checkpoint)
        assert all(same(loaded[name], array) for name, array in arrays.items())
        assert all(array.ctypes.data % 64 == 0 for array in loaded.values() if array.size)
        assert checkpoint.nbytes == sum(array.nbytes for array in arrays.values())


def test_a_missing_name_is_a_key_error_with_near_names(tmp_path):
    sw.save(tmp_path / "a.safetensors", {"model.norm.weight": np.zeros(3)})
    checkpoint = sw.open(tmp_path / "a.safetensors")
    assert "model.norm.bias" not in checkpoint and checkpoint.get("model.norm.bias") is None
    with pytest.raises(KeyError) as raised:
        checkpoint["model.norm.wieght"]
    assert isinstance(raised.value, sw.NotFoundError)
    assert raised.value.tensor == "model.norm.wieght" and "'model.norm.weight'" in raised.value.hint


INDICES = [np.s_[()], np.s_[...], np.s_[2], np.s_[-1], np.s_[2:5], np.s_[2:5, ::3], np.s_[::-1], np.s_[::-2, 1:-1:2], np.s_[:, ::-3],
           np.s_[..., -1], np.s_[1, ...], np.s_[None], np.s_[:, None, 2], np.s_[5:2], np.s_[100:], np.s_[-3:100], np.s_[np.int64(3)],
           np.s_[4:2:-1, ...], np.s_[3, 4], np.s_[..., 3, 4], np.s_[29:0:-28]]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_slices_are_numpys(tmp_path, rng, index):
    array = rng.standard_normal((30, 7)).astype("f4")
    sw.save(tmp_path / "a.safetensors", {"w": array})
    got = sw.open(tmp_path / "a.safetensors")["w"][index]
    expected = array[index]
    assert type(got) is type(expected) and same(np.asarray(got), np.asarray(expected))
    assert got.ndim == 0 or got.flags.writeable


def random_item(rng, extent):
    if rng.random() < 0.2:
        return int(rng.integers(-extent, extent))
    start, stop = (None if rng.random() < 0.3 else int(rng.integers(-extent - 2, extent + 3)) for _ in range(2))
    return slice(start, stop, int(rng.choice([-3, -2, -1, 1, 1, 2, 5])))


def random_index(rng, shape):
    """Of the first dimensions, perhaps '...' and some of the last ones, perhaps a new one somewhere."""
    first = int(rng.integers(0, len(shape) + 1))
    items = [random_item(rng, extent) for extent in shape[:first]]
    if rng.random() < 0.4:
        last = int(rng.integers(0, len(shape) - first + 1))
        items += [..., *(random_item(rng, extent) for extent in shape[len(shape) - last:])]
    if rng.random() < 0.2:
        items.insert(int(rng.integers(0, len(items) + 1)), None)
    return tuple(items)


@pytest.mark.parametrize("read_gap,scratch", [(64 << 10, 8 << 20), (0, 1 << 20), (1 << 40, 64)], ids=["as-is", "rows-alone", "in-blocks"])
def test_any_slice_is_numpys(tmp_path, rng, monkeypatch, read_gap, scratch):
    """The limits decide only how it is read; small ones make every way of reading small tensors happen."""
    monkeypatch.setattr("shardwright.slicing.READ_GAP_BYTES", read_gap)
    monkeypatch.setattr("shardwright.slicing.SCRATCH_BYTES", scratch)
    arrays = {"a": rng.standard_normal((6, 5, 8)).astype("f2"), "b": rng.integers(0, 99, 40), "c": rng.standard_normal((3, 4, 2, 5)),
              "packed": rng.integers(0, 16, (4, 3, 6)).astype("u1").view(ml_dtypes.float4_e2m1fn)}
    sw.save(tmp_path / "a.safetensors", arrays)
    checkpoint = sw.open(tmp_path / "a.safetensors")
    for _ in range(150):
        name = rng.choice(list(arrays))
        index = random_index(rng, arrays[name].shape)
        got, expected = checkpoint[name][index], arrays[name][index]
        assert np.shape(got) == expected.shape and np.asarray(got).tobytes() == expected.tobytes(), (name, index)


@pytest.mark.parametrize("index", [[0, 1], np.array([1]), np.array([True] * 30), True, "w", 1.0], ids=str)
def test_what_is_no_basic_index_is_an_index_error(tmp_path, index):
    sw.save(tmp_path / "a.safetensors", {"w": np.zeros((30, 7))})
    with pytest.raises(IndexError):
        sw.open(tmp_path / "a.safetensors")["w"][index]


@pytest.mark.parametrize("index", [30, -31, (0, 7), (0, 0, 0), (..., ...)], ids=str)
def test_indices_outside_are_numpys_errors(tmp_path, index):
    sw.save(tmp_path / "a.safetensors", {"w": np.zeros((30, 7))})
    with pytest.raises(IndexError):
        np.zeros((30, 7))[index]
    with pytest.raises(IndexError):
        sw.open(tmp_path / "a.safetensors")["w"][index]


def read_by_process() -> int:
    """Bytes that this process asked the system for in read calls."""
    with open("/proc/self/io") as io:
        return next(int(line.split()[1]) for line in io if line.startswith("rchar"))


GAP = 64 << 10


# Of a (1000, 4096) float32 tensor, rows of 16 KiB: bytes taken, and gaps that may be read with them.
@pytest.mark.parametrize("index,wanted,gaps", [
    (np.s_[17], 16384, 0), (np.s_[3:5], 32768, 0), (np.s_[999, 7], 4, 0), (np.s_[::100], 10 * 16384, 0), (np.s_[::-100], 10 * 16384, 0),
    (np.s_[::2], 500 * 16384, 500 * 16384), (np.s_[5:9, 10:20], 4 * 40, 3 * 16384), (np.s_[0:0], 0, 0), (np.s_[5, ::1024], 16, 12288),
], ids=str)
def test_only_the_bytes_needed_are_read(tmp_path, index, wanted, gaps):
    array = np.arange(4096000, dtype="f4").reshape(1000, 4096)
    sw.save(tmp_path / "a.safetensors", {"before": np.ones(10000), "w": array, "after": np.ones(10000)})
    checkpoint = sw.open(tmp_path / "a.safetensors")
    checkpoint["w"][0]  # whatever is read once, by anything, has been
    store, process = checkpoint.bytes_read, read_by_process()
    assert np.array_equal(checkpoint["w"][index], array[index])
    process = read_by_process() - process
    store = checkpoint.bytes_read - store
    assert wanted <= store <= wanted + gaps
    assert wanted <= process <= wanted + gaps + 32768  # what the test runner reads beside it


def test_opening_reads_no_tensor(tmp_path):
    sw.save(tmp_path / "a.safetensors", {"w": np.ones(10_000_000, "f4")})
    before = read_by_process()
    checkpoint = sw.open(tmp_path / "a.safetensors")
    assert checkpoint["w"].shape == (10_000_000,) and repr(checkpoint["w"]) and checkpoint.metadata
    assert read_by_process() - before < 100_000


def test_load_reads_every_byte_once(tmp_path, rng):
    arrays = {f"t{i}": rng.standard_normal(n).astype("f4") for i, n in enumerate([3, 100_000, 17, 5_000_000, 1000])}
    sw.save(tmp_path / "m", arrays, max_shard_size="1MB")
    checkpoint = sw.open(tmp_path / "m")
    before = checkpoint.bytes_read
    loaded = checkpoint.load()
    assert all(same(loaded[name], array) for name, array in arrays.items())
    assert checkpoint.bytes_read - before == sum(array.nbytes for array in arrays.values())


def test_load_some_in_the_order_asked_for(stored):
    path, arrays = stored
    names = sorted(arrays, reverse=True)[:4]
    assert list(sw.open(path).load(names)) == names
    assert sw.open(path).load([]) == {}
    with pytest.raises(TypeError):
        sw.open(path).load("w")


def test_load_into_arrays(stored, rng):
    path, arrays = stored
    out = {name: np.zeros_like(array) for name, array in arrays.items()}
    flipped = next(name for name in arrays if name.endswith("w") or name.endswith("w/vars/0"))
    out[flipped] = np.zeros((7, 60), "f4").T[::-2]
    got = sw.open(path).load(out=out)
    for name, array in arrays.items():
        assert np.shares_memory(got[name], out[name]) or array.size == 0
        assert out[name].tobytes() == array.tobytes(), name


def test_load_into_arrays_that_do_not_fit_changes_nothing(tmp_path):
    sw.save(tmp_path / "a.safetensors", {"a": np.ones(3), "b": np.ones(3, "f4"), "c": np.ones(3), "d": np.ones(3), "e": np.ones(3)})
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    out = {"a": np.zeros(3), "b": np.zeros(3), "c": np.zeros(4), "d": frozen, "f": np.zeros(3)}
    checkpoint = sw.open(tmp_path / "a.safetensors")
    with pytest.raises(ValueError) as raised:
        checkpoint.load(list("abcde"), out)
    text = str(raised.value)
    assert all(f"'{name}'" in text for name in "bcde") and "'a'" not in text and "read-only" in text
    assert not out["a"].any()
    with pytest.raises(sw.TensorNotFoundError):
        checkpoint.load(out=out)


def test_boxes_of_tensors_in_one_pass(tmp_path, rng):
    array, other = rng.standard_normal((64, 96)).astype("f4"), rng.standard_normal(10)
    sw.save(tmp_path / "a.safetensors", {"w": array, "x": other})
    checkpoint = sw.open(tmp_path / "a.safetensors")
    columns = [np.zeros((64, 24), "f4") for _ in range(4)]
    middle = np.zeros(4)
    before = checkpoint.bytes_read
    checkpoint.read([("w", (0, 24 * i), part) for i, part in enumerate(columns)] + [("x", [3], middle)])
    assert np.array_equal(np.concatenate(columns, axis=1), array) and np.array_equal(middle, other[3:7])
    assert array.nbytes + middle.nbytes <= checkpoint.bytes_read - before <= array.nbytes + other.nbytes
    half = np.zeros((2, 96), ml_dtypes.bfloat16)
    checkpoint.read([("w", (5, 0), half)])
    assert same(half, array[5:7].astype(ml_dtypes.bfloat16))
    with pytest.raises(sw.InvalidArgumentError):
        checkpoint.read([("w", (60, 0), np.zeros((5, 96), "f4"))])
    with pytest.raises(sw.UnsupportedError):
        checkpoint.read([("w", (0, 0), np.zeros((5, 96), "i4"))])
    with pytest.raises(sw.InvalidArgumentError, match="whole numbers"):
        checkpoint.read([("w", (0.9, 0), np.zeros((5, 96), "f4"))])


def test_reading_as_another_type_and_into_an_array(tmp_path, rng):
    array = rng.standard_normal((8, 6))
    sw.save(tmp_path / "a.safetensors", {"w": array})
    tensor = sw.open(tmp_path / "a.safetensors")["w"]
    assert same(tensor.read(np.s_[1:3], dtype="half"), array[1:3].astype("f2"))
    out = np.zeros((6, 2)).T
    assert tensor.read(np.s_[::7], out=out) is out and np.array_equal(out, array[::7])
    with pytest.raises(sw.InvalidArgumentError):
        tensor.read(np.s_[1:3], out=np.zeros(6))
    with pytest.raises(sw.InvalidArgumentError):
        tensor.read(dtype="float31")
    with pytest.raises(sw.InvalidArgumentError, match="float32"):
        tensor.read(dtype="f4")


def test_packed_types_are_converted_to_floating_ones_only(tmp_path):
    array = np.arange(8).astype(ml_dtypes.float4_e2m1fn)
    sw.save(tmp_path / "a.safetensors", {"w": array})
    tensor = sw.open(tmp_path / "a.safetensors")["w"]
    assert same(tensor.read(dtype="float32"), array.astype("f4"))
    for options in ({"dtype": "int8"}, {"dtype": "bool"}, {"out": np.zeros(8, "i8")}):
        with pytest.raises(sw.UnsupportedError):
            tensor.read(**options)


def test_array_protocol(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    sw.save(tmp_path / "a.safetensors", {"w": array})
    tensor = sw.open(tmp_path / "a.safetensors")["w"]
    assert same(np.array(tensor), array) and same(np.asarray(tensor, dtype="f4"), array.astype("f4"))
    assert same(np.asarray(tensor, copy=True), array) and np.array_equal(np.ones(3) + np.asarray(tensor), array + 1)
    with pytest.raises(ValueError):
        np.asarray(tensor, copy=False)
    assert len(tensor) == 2 and [row.tolist() for row in tensor] == array.tolist()
    sw.save(tmp_path / "b.safetensors", {"s": np.array(1.0)})
    with pytest.raises(TypeError):
        len(sw.open(tmp_path / "b.safetensors")["s"])


@pytest.mark.parametrize("name", ["w", "half", "bf16", "f8", "f8b", "bytes", "double", "steps"])
def test_dlpack_to_torch(tmp_path, weights, name):
    torch = pytest.importorskip("torch")
    sw.save(tmp_path / "a.safetensors", weights)
    tensor = sw.open(tmp_path / "a.safetensors")[name]
    assert tensor.__dlpack_device__() == (1, 0)
    got = torch.from_dlpack(tensor)
    assert tuple(got.shape) == weights[name].shape and str(got.dtype).removeprefix("torch.") == weights[name].dtype.name
    assert bytes(got.view(torch.uint8).flatten().numpy()) == weights[name].tobytes() if got.ndim else got.item() == weights[name]


def test_ties_are_one_array(tmp_path):
    sw.save(tmp_path / "a.safetensors", {"embed": np.arange(4.0)}, ties={"head": "embed"})
    checkpoint = sw.open(tmp_path / "a.safetensors")
    loaded = checkpoint.load()
    assert loaded["head"] is loaded["embed"] and checkpoint.ties in ({"head": "embed"}, {"embed": "head"})
    assert checkpoint.nbytes == 32 and sw.info(tmp_path / "a.safetensors").ties == checkpoint.ties


def test_closed_and_changed(tmp_path):
    path = tmp_path / "a.safetensors"
    sw.save(path, {"w": np.zeros(100)})
    with sw.open(path) as checkpoint:
        tensor = checkpoint["w"]
    with pytest.raises(ValueError, match="closed"):
        tensor[0]
    checkpoint = sw.open(path)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(sw.AbortedError) as raised:
        checkpoint["w"][:]
    assert isinstance(raised.value, InterruptedError) and raised.value.path


def test_arrays_outlive_the_checkpoint(tmp_path):
    import gc
    sw.save(tmp_path / "a.safetensors", {"a": np.arange(10.0), "b": np.arange(1000.0)})
    loaded = sw.open(tmp_path / "a.safetensors").load()
    b = loaded.pop("b")
    del loaded
    gc.collect()
    assert np.array_equal(b, np.arange(1000.0))
