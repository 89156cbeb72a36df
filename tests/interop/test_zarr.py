"""zarr arrays of zarr-python and TensorStore, read by us."""
import ml_dtypes
import numpy as np
import pytest
import raw

zarr = pytest.importorskip("zarr")
import numcodecs  # noqa: E402

COMPRESSORS = {
    "none": None, "zlib": numcodecs.Zlib(6), "gzip": numcodecs.GZip(3), "zstd": numcodecs.Zstd(3), "lz4": numcodecs.LZ4(),
    "blosc_lz4": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE), "blosc_zstd_bits": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE),
    "blosc_blosclz": numcodecs.Blosc("blosclz", 9, numcodecs.Blosc.NOSHUFFLE),
}


def read(shardwright, path, tmp_path) -> dict:
    shardwright.copy(path, tmp_path / "out.safetensors")
    return raw.read(tmp_path / "out.safetensors")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_version_2(shardwright, tmp_path, rng, compressor, order):
    """Edge chunks in both dimensions, both byte orders, a filter, and a chunk that was never written."""
    group = zarr.open_group(tmp_path / "g", mode="w", zarr_format=2)
    values = rng.standard_normal((37, 23)).astype("f4")
    wide = rng.integers(-9, 9, (8, 6, 5)).astype(">i8")
    for name, array, chunks, filters in [("a/values", values, (10, 7), None), ("wide", wide, (3, 6, 2), [numcodecs.Shuffle(8)])]:
        made = group.create_array(name, shape=array.shape, chunks=chunks, dtype=array.dtype, compressors=COMPRESSORS[compressor], filters=filters, order=order)
        made[...] = array
    hole = group.create_array("hole", shape=(4, 4), chunks=(2, 2), dtype="f8", fill_value=2.5, compressors=COMPRESSORS[compressor], order=order)
    hole[:2, :2] = 1
    found = read(shardwright, tmp_path / "g", tmp_path)
    assert found["a/values"] == ("F32", [37, 23], values.tobytes())
    assert found["wide"] == ("I64", [8, 6, 5], wide.astype("<i8").tobytes())
    assert found["hole"] == ("F64", [4, 4], hole[...].tobytes())


def test_version_3(shardwright, tmp_path, rng):
    from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
    group = zarr.open_group(tmp_path / "g", mode="w", zarr_format=3)
    values = rng.standard_normal((37, 23, 4)).astype("f4")
    cases = {
        "plain": {"compressors": None}, "zstd": {"compressors": ZstdCodec(level=3)}, "gzip": {"compressors": GzipCodec(level=5)},
        "blosc": {"compressors": BloscCodec(cname="zstd", clevel=3)}, "sum": {"compressors": [ZstdCodec(level=1), Crc32cCodec()]},
        "turned": {"filters": TransposeCodec(order=(2, 0, 1)), "compressors": None},
        "turned_zstd": {"filters": TransposeCodec(order=(2, 0, 1)), "compressors": ZstdCodec(level=1)},
        "big": {"serializer": BytesCodec(endian="big"), "compressors": None},
        "shards": {"shards": (20, 20, 4), "chunks": (10, 5, 2), "compressors": ZstdCodec(level=1)},
        "shards_plain": {"shards": (20, 20, 4), "chunks": (10, 5, 2), "compressors": None},
    }
    for name, options in cases.items():
        made = group.create_array(name, shape=values.shape, dtype="f4", **{"chunks": (10, 7, 3), **options})
        made[...] = values
    hole = group.create_array("shard_with_holes", shape=(8, 8), shards=(8, 8), chunks=(2, 2), dtype="i2", fill_value=-3)
    hole[:2, :2] = 1
    found = read(shardwright, tmp_path / "g", tmp_path)
    for name in cases:
        assert found[name] == ("F32", [37, 23, 4], values.tobytes()), name
    assert found["shard_with_holes"] == ("I16", [8, 8], hole[...].tobytes())


@pytest.mark.parametrize("version", [2, 3])
def test_types_beyond_safetensors(shardwright, tmp_path, rng, version):
    """complex128 and two kinds of float8 are read, and written as HDF5 and Orbax have them; safetensors has no such types and refuses."""
    import h5py
    ts = pytest.importorskip("tensorstore")
    values = rng.standard_normal((7, 5)) + 1j * rng.standard_normal((7, 5))
    group = zarr.open_group(tmp_path / "g", mode="w", zarr_format=version)
    complexes = {"little": "<c16", "big": ">c16"} if version == 2 else {"little": "c16"}
    for name, order in complexes.items():
        made = group.create_array(name, shape=values.shape, chunks=(3, 2), dtype=order, fill_value=1 + 2j)
        made[:6] = values[:6]
    values[6] = 1 + 2j
    small = ("float8_e3m4", "float8_e4m3b11fnuz")
    for name in small:
        made = ts.open({"driver": {2: "zarr", 3: "zarr3"}[version], "kvstore": f"file://{tmp_path}/g/{name}/"}, create=True, dtype=name, shape=[256]).result()
        made.write(np.arange(256, dtype="u1").view(getattr(ml_dtypes, name))).result()
    shardwright.run("copy", tmp_path / "g", tmp_path / "a.safetensors", code=6)
    shardwright.copy(tmp_path / "g", tmp_path / "a.weights.h5")
    shardwright.copy(tmp_path / "g", tmp_path / "c", "--to", "orbax")
    with h5py.File(tmp_path / "a.weights.h5") as file:
        found = []
        file.visititems(lambda _, node: found.append(node[...]) if isinstance(node, h5py.Dataset) and node.dtype == "c16" else None)
        assert len(found) == len(complexes) and all(np.array_equal(array, values) for array in found)
    ocp = pytest.importorskip("orbax.checkpoint")
    restored = ocp.StandardCheckpointer().restore(tmp_path / "c")
    assert all(np.array_equal(restored[name], values) and restored[name].dtype == "c16" for name in complexes)
    assert all(restored[name].dtype == name and restored[name].tobytes() == bytes(range(256)) for name in small)
    assert shardwright.json("diff", tmp_path / "c", tmp_path / "a.weights.h5") == []


def test_a_chunk_that_does_not_fit_is_refused_with_the_number(shardwright, tmp_path):
    """blosc gives a chunk as a whole or not at all: 64 MB do not fit 16 MiB. zstd, of the same, streams."""
    for name, compressor in (("blosc", numcodecs.Blosc("lz4", 5)), ("zstd", numcodecs.Zstd(3))):
        made = zarr.create_array(tmp_path / name, shape=(2**24,), chunks=(2**24,), dtype="f4", zarr_format=2, compressors=compressor)
        made[...] = np.arange(2**24, dtype="f4")
    refused = shardwright.run("copy", tmp_path / "blosc", tmp_path / "x.safetensors", "--memory", "16MiB", code=8)
    needed = [word for word in refused.stderr.split() if word.endswith("MiB") and word[:-3].isdigit()][-1]
    assert 64 < int(needed[:-3]) < 200 and not (tmp_path / "x.safetensors").exists()
    shardwright.copy(tmp_path / "blosc", tmp_path / "x.safetensors", "--memory", needed)
    shardwright.copy(tmp_path / "zstd", tmp_path / "y.safetensors", "--memory", "16MiB")
    assert raw.read(tmp_path / "x.safetensors") == raw.read(tmp_path / "y.safetensors")


def test_array_at_the_root(shardwright, tmp_path):
    made = zarr.create_array(tmp_path / "a.zarr", shape=(5,), chunks=(2,), dtype="u1", zarr_format=3)
    made[...] = np.arange(5)
    assert read(shardwright, tmp_path / "a.zarr", tmp_path) == {"array": ("U8", [5], bytes(range(5)))}


def test_slice_reads_the_chunks_it_cuts(shardwright, tmp_path, rng):
    values = rng.standard_normal((64, 64)).astype("f4")
    made = zarr.create_array(tmp_path / "a.zarr", shape=values.shape, shards=(64, 64), chunks=(8, 8), dtype="f4", compressors=None)
    made[...] = values
    shown = shardwright.json("show", tmp_path / "a.zarr", "array", "--slice", "3:5,9")
    assert np.allclose(np.ravel(shown["values"] if isinstance(shown, dict) and "values" in shown else shown), values[3:5, 9])


@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
def test_small_integers_keep_their_sign(shardwright, tmp_path, driver):
    """TensorStore writes int4's -1 as 0x0f; safetensors has no type for it, so it comes as int8."""
    import tensorstore as ts
    values = np.arange(-8, 7).reshape(5, 3)
    for name, dtype, array in (("a", "int4", values), ("b", "int2", values % 4 - 2)):
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(tmp_path / "g" / name)}, "create": True}
        spec["metadata"] = {"data_type": dtype, "fill_value": -1} if driver == "zarr3" else {"dtype": dtype, "fill_value": -1}
        if driver == "zarr" and name == "b":
            spec["metadata"] |= {"compressor": None, "order": "F"}
        made = ts.open(spec, shape=array.shape, chunk_layout=ts.ChunkLayout(chunk_shape=(2, 2))).result()
        made[:4].write(array[:4].astype(made.dtype.numpy_dtype)).result()
        array[4] = -1
        assert (made.read().result().astype("i1") == array).all()
        found = read(shardwright, tmp_path / "g" / name, tmp_path / "g")
        (tmp_path / "g" / "out.safetensors").unlink()
        assert found == {"array": ("I8", [5, 3], array.astype("i1").tobytes())}
