"""h5py and Keras read what this writes, and this reads what they write."""
import io
import json
import zipfile

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import raw

GIB = 1024**3


def read_h5(source) -> dict[str, np.ndarray]:
    """Every dataset by h5py alone: path without the first slash -> array, opaque ones by their `dtype` attribute."""
    arrays = {}
    with h5py.File(source, "r") as file:
        def visit(name, node):
            if not isinstance(node, h5py.Dataset):
                return
            values = node[()]
            if values.dtype.kind == "V":
                values = np.asarray(values).view(np.dtype(getattr(ml_dtypes, node.attrs["dtype"])))
            arrays[name] = np.asarray(values)
        file.visititems(visit)
    return arrays


def numpy_of(tensor: raw.Tensor) -> np.ndarray:
    names = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "I32": "int32",
             "U32": "uint32", "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64", "C64": "complex64"}
    dtype, shape, data = tensor
    return np.frombuffer(data, ml_dtypes.bfloat16 if dtype == "BF16" else names[dtype]).reshape(shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def dense_model(dtype="float32") -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([
        keras.Input((12,)), keras.layers.Dense(16, activation="relu", dtype=dtype), keras.layers.BatchNormalization(dtype=dtype),
        keras.layers.Dense(16, dtype=dtype), keras.layers.Dropout(0.1), keras.layers.Dense(3, dtype=dtype)])
    for layer in model.layers:
        layer.set_weights([keras.random.normal(w.shape) * 0.5 + 1 for w in layer.get_weights()])
    return model


def functional_model() -> keras.Model:
    keras.utils.set_random_seed(8)
    x = inputs = keras.Input((8,), name="in")
    shared = keras.layers.Dense(8, name="shared")
    x = shared(shared(x))
    x = keras.Sequential([keras.layers.Dense(6), keras.layers.LayerNormalization()], name="inner")(x)
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(x), name="outer")
    model.compile(optimizer="adam", loss="mse")
    model.fit(np.ones((4, 8), "float32"), np.ones((4, 2), "float32"), verbose=0)
    return model


def predictions(model: keras.Model) -> np.ndarray:
    width = model.input_shape[-1]
    values = np.linspace(-1, 1, 5 * width, dtype="float32").reshape(5, width)
    return np.asarray(model(values, training=False))


def forget(model: keras.Model) -> None:
    """Other weights, so that a load that does nothing is seen."""
    model.set_weights([np.full(w.shape, 0.25, w.dtype) for w in model.get_weights()])


@pytest.fixture(params=[dense_model, functional_model, lambda: dense_model("bfloat16")], ids=["dense", "functional", "bfloat16"])
def model(request) -> keras.Model:
    return request.param()


def test_keras_weights_to_safetensors_and_back(shardwright, tmp_path, model):
    before = predictions(model)
    model.save_weights(tmp_path / "a.weights.h5")
    arrays = read_h5(tmp_path / "a.weights.h5")
    shardwright.copy(tmp_path / "a.weights.h5", tmp_path / "b.safetensors")
    tensors = raw.read(tmp_path / "b.safetensors")
    assert tensors.keys() == arrays.keys()
    for name, tensor in tensors.items():
        assert same(numpy_of(tensor), arrays[name]), name
    shardwright.copy(tmp_path / "b.safetensors", tmp_path / "c.weights.h5")
    again = read_h5(tmp_path / "c.weights.h5")
    assert again.keys() == arrays.keys() and all(same(again[name], arrays[name]) for name in arrays)
    forget(model)
    model.load_weights(tmp_path / "c.weights.h5")
    assert np.array_equal(predictions(model), before)


@pytest.mark.parametrize("limit_bytes", [1100, 1500, 3000, 100_000])
def test_sharding_is_keras_own(shardwright, tmp_path, model, limit_bytes):
    (tmp_path / "keras").mkdir()
    (tmp_path / "ours").mkdir()
    before = predictions(model)
    model.save_weights(tmp_path / "m.weights.h5")
    model.save_weights(tmp_path / "keras" / "m.weights.json", max_shard_size=limit_bytes / GIB)
    summary = shardwright.copy(tmp_path / "m.weights.h5", tmp_path / "ours" / "m.weights.json", "--max-shard-size", limit_bytes)
    theirs = json.loads((tmp_path / "keras" / "m.weights.json").read_text())
    ours = json.loads((tmp_path / "ours" / "m.weights.json").read_text())
    assert ours["weight_map"] == theirs["weight_map"]
    assert ours["metadata"]["total_size"] == theirs["metadata"]["total_size"]
    files = sorted(p.name for p in (tmp_path / "keras").iterdir())
    assert sorted(p.name for p in (tmp_path / "ours").iterdir()) == files
    assert summary["shards"] == len(files) - 1
    for file in files:
        if file.endswith(".h5"):
            a, b = read_h5(tmp_path / "keras" / file), read_h5(tmp_path / "ours" / file)
            assert a.keys() == b.keys() and all(same(a[name], b[name]) for name in a), file
    forget(model)
    model.load_weights(tmp_path / "ours" / "m.weights.json")
    assert np.array_equal(predictions(model), before)
    # A lost index is made again from the shards; in a process of its own, too.
    index = tmp_path / "ours" / "m.weights.json"
    for args in ([], ["--isolate"]):
        index.unlink()
        rebuilt = shardwright.json("reindex", index, *args)
        assert rebuilt["shards"] == len(files) - 1 and rebuilt["added"]
        assert json.loads(index.read_text()) == ours
    # And Keras's own shards, merged by us.
    shardwright.copy(tmp_path / "keras" / "m.weights.json", tmp_path / "merged.weights.h5")
    forget(model)
    model.load_weights(tmp_path / "merged.weights.h5")
    assert np.array_equal(predictions(model), before)


def test_archive_is_read_in_place(shardwright, tmp_path, model):
    model.save(tmp_path / "a.keras")
    with zipfile.ZipFile(tmp_path / "a.keras") as archive:
        arrays = read_h5(io.BytesIO(archive.read("model.weights.h5")))
    shardwright.copy(tmp_path / "a.keras", tmp_path / "b.safetensors")
    tensors = raw.read(tmp_path / "b.safetensors")
    assert tensors.keys() == arrays.keys() and all(same(numpy_of(tensors[name]), arrays[name]) for name in arrays)
    for row in shardwright.json("ls", tmp_path / "a.keras"):
        content = (tmp_path / "a.keras").read_bytes()
        assert content[row["offset"]:row["offset"] + row["nbytes"]] == arrays[row["name"]].tobytes()


def test_weights_of_an_archive_are_replaced(shardwright, tmp_path):
    model = dense_model()
    before = predictions(model)
    model.save_weights(tmp_path / "new.weights.h5")
    forget(model)
    model.save(tmp_path / "a.keras")
    with zipfile.ZipFile(tmp_path / "a.keras") as archive:
        config = archive.read("config.json")
    shardwright.copy(tmp_path / "new.weights.h5", tmp_path / "a.keras", "--overwrite")
    with zipfile.ZipFile(tmp_path / "a.keras") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["metadata.json", "config.json", "model.weights.h5"]
        assert archive.read("config.json") == config
    assert np.array_equal(predictions(keras.saving.load_model(tmp_path / "a.keras")), before)


def test_assets_go_along_compressed_or_not(shardwright, tmp_path, rng):
    """Into a directory: members that another program has compressed are decoded."""
    dense_model().save(tmp_path / "a.keras")
    assets = {"assets/layers/text/vocabulary.txt": b"one two\n" * 50_000, "assets/layers/text/noise.bin": rng.bytes(200_000), "assets/empty": b""}
    with zipfile.ZipFile(tmp_path / "a.keras") as archive, zipfile.ZipFile(tmp_path / "b.keras", "w") as packed:
        for name in archive.namelist():
            packed.writestr(name, archive.read(name), zipfile.ZIP_STORED if name.endswith(".h5") else zipfile.ZIP_DEFLATED)
            assets |= {name: archive.read(name)} if not name.endswith(".h5") else {}
        for name, content in assets.items():
            if name.startswith("assets"):
                packed.writestr(name, content, zipfile.ZIP_DEFLATED)
    for isolate in ([], ["--isolate"]):
        out = tmp_path / f"out{len(isolate)}"
        assert not [text for text in shardwright.copy(tmp_path / "b.keras", out, *isolate)["warnings"] if "member" in text]
        files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert files.pop("model.safetensors") and files == assets
    damaged = bytearray((tmp_path / "b.keras").read_bytes())
    at = damaged.index(b"vocabulary.txt") + len("vocabulary.txt")
    damaged[at:at + 40] = b"\xff" * 40
    (tmp_path / "c.keras").write_bytes(damaged)
    assert "vocabulary.txt" in shardwright.run("copy", tmp_path / "c.keras", tmp_path / "damaged", code=4).stderr
    assert not (tmp_path / "damaged").exists()


def test_bombs_are_no_assets(shardwright, tmp_path):
    dense_model().save(tmp_path / "a.keras")
    with zipfile.ZipFile(tmp_path / "a.keras", "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("assets/bomb", "w", force_zip64=True) as member:
            for _ in range(257):
                member.write(bytes(1 << 20))
    warnings = [text for text in shardwright.copy(tmp_path / "a.keras", tmp_path / "out")["warnings"] if "member" in text]
    assert len(warnings) == 1 and "assets/bomb" in warnings[0] and "claims far more" in warnings[0]
    assert not (tmp_path / "out" / "assets" / "bomb").exists()


def test_bfloat16_and_float8_read_back(shardwright, tmp_path, rng):
    """Keras writes float8 and cannot read it; here the attribute makes the round trip whole."""
    tensors = raw.every_dtype(rng)
    raw.write(tmp_path / "a.safetensors", tensors)
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.weights.h5")
    with h5py.File(tmp_path / "b.weights.h5") as file:
        node = file["bf16.matrix/vars/0"]
        assert node.dtype == np.dtype("V2") and node.attrs["dtype"] == "bfloat16"
        assert node[()].tobytes() == tensors["bf16.matrix"][2]
        assert file["f16.matrix/vars/0"].dtype == np.float16
        assert file["bool.matrix/vars/0"].dtype == np.bool_
        assert file["c64.matrix/vars/0"].dtype == np.complex64
        assert file["f8_e4m3.matrix/vars/0"].attrs["dtype"] == "float8_e4m3fn"
    shardwright.copy(tmp_path / "b.weights.h5", tmp_path / "c.safetensors")
    assert raw.read(tmp_path / "c.safetensors") == tensors


FOREIGN = {
    "chunked": dict(chunks=(3, 4)),
    "gzip": dict(chunks=(5, 7), compression="gzip", compression_opts=4),
    "shuffle": dict(chunks=(5, 7), compression="gzip", shuffle=True),
    "fletcher": dict(chunks=(4, 4), fletcher32=True),
    "all": dict(chunks=(2, 3), compression="gzip", shuffle=True, fletcher32=True),
    "contiguous": {},
}


# The oldest and the newest structures that HDF5 1.10 knows: what HDF5 2 writes for "latest" it cannot open.
@pytest.mark.parametrize("libver", [("earliest", "v110"), ("v110", "v110")], ids=["earliest", "v110"])
@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i8", "<u2", ">f2", "bool"])
def test_foreign_hdf5_is_read(shardwright, tmp_path, rng, libver, dtype):
    arrays = {}
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for name, options in FOREIGN.items():
            values = rng.integers(0, 2 if dtype == "bool" else 100, (11, 13)).astype(dtype)
            file.create_dataset(f"group/{name}", data=values, **options)
            arrays[f"group/{name}"] = values.astype(values.dtype.newbyteorder("<"))
        file.create_dataset("group/holes", (9, 9), dtype, chunks=(4, 4), fillvalue=1)[0:2, 0:2] = 0
        holes = np.ones((9, 9), dtype)
        holes[0:2, 0:2] = 0
        arrays["group/holes"] = holes.astype(holes.dtype.newbyteorder("<"))
    shardwright.copy(tmp_path / "a.h5", tmp_path / "b.safetensors")
    tensors = raw.read(tmp_path / "b.safetensors")
    assert tensors.keys() == arrays.keys()
    for name, tensor in tensors.items():
        assert same(numpy_of(tensor), arrays[name]), name


def test_a_filter_that_nobody_knows_hides_nothing_else(shardwright, tmp_path, rng):
    good = rng.standard_normal((20, 3)).astype("f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("odd", data=np.arange(100), chunks=(50,), compression="lzf")
        file.create_dataset("good", data=good, chunks=(5, 3), compression="gzip")
    assert {row["name"]: row["shape"] for row in shardwright.json("ls", tmp_path / "a.h5")} == {"odd": [100], "good": [20, 3]}
    assert shardwright.json("show", tmp_path / "a.h5", "good", "--stats")
    shardwright.copy(tmp_path / "a.h5", tmp_path / "b.safetensors", "--exclude", "odd")
    assert same(numpy_of(raw.read(tmp_path / "b.safetensors")["good"]), good)
    for command in (["copy", tmp_path / "a.h5", tmp_path / "c.safetensors"], ["show", tmp_path / "a.h5", "odd"], ["hash", tmp_path / "a.h5"]):
        error = shardwright.run(*command, code=6).stderr
        assert "odd" in error and "HDF5 filter 32000 lzf" in error
    assert not (tmp_path / "c.safetensors").exists()
    for full in ([], ["--full"]):
        lines = shardwright.lines("verify", tmp_path / "a.h5", *full, code=1)
        assert [(line["code"], line["tensor"]) for line in lines if line["type"] == "finding"] == [("unsupported", "odd")]


def test_legacy_h5_is_read(shardwright, tmp_path):
    model = dense_model()
    model.save(tmp_path / "old.h5")
    arrays = read_h5(tmp_path / "old.h5")
    assert arrays
    shardwright.copy(tmp_path / "old.h5", tmp_path / "b.safetensors")
    tensors = raw.read(tmp_path / "b.safetensors")
    assert tensors.keys() == arrays.keys() and all(same(numpy_of(tensors[name]), arrays[name]) for name in arrays)


def samples(data) -> dict[str, dict[str, np.ndarray]]:
    """The sample checkpoints, each with its arrays as h5py sees them."""
    folder = data / "keras"
    found = {"simple.weights.h5": read_h5(folder / "simple.weights.h5")}
    for archive in ("bf16.keras", "nested.keras"):
        with zipfile.ZipFile(folder / archive) as opened:
            found[archive] = read_h5(io.BytesIO(opened.read("model.weights.h5")))
    for index in ("simple_sharded", "bf16_sharded"):
        arrays: dict[str, np.ndarray] = {}
        for shard in sorted(folder.glob(f"{index}_*.weights.h5")):
            arrays |= read_h5(shard)
        found[f"{index}.weights.json"] = arrays
    return found


def test_samples(shardwright, data, tmp_path):
    for i, (name, arrays) in enumerate(samples(data).items()):
        target = tmp_path / f"{i}.safetensors"
        shardwright.copy(data / "keras" / name, target)
        tensors = raw.read(target)
        assert tensors.keys() == arrays.keys(), name
        for key, tensor in tensors.items():
            assert same(numpy_of(tensor), arrays[key]), (name, key)
        assert not [line for line in shardwright.lines("verify", data / "keras" / name, "--full") if line["type"] == "finding"]
    assert shardwright.json("diff", data / "keras" / "simple.weights.h5", data / "keras" / "simple_sharded.weights.json") == []


def test_torch_model_as_keras_weights(shardwright, tmp_path, rng):
    """Any safetensors file becomes groups that h5py opens: tensor N is dataset 0 of N/vars."""
    tensors = {"a.weight": ("F32", [4, 3], rng.bytes(48)), "a.bias": ("F32", [4], rng.bytes(16)), "step": ("I64", [], rng.bytes(8))}
    raw.write(tmp_path / "a.safetensors", tensors)
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.weights.h5")
    arrays = read_h5(tmp_path / "b.weights.h5")
    assert arrays.keys() == {f"{name}/vars/0" for name in tensors}
    for name, tensor in tensors.items():
        assert same(arrays[f"{name}/vars/0"], numpy_of(tensor))
