"""The cases that Keras's own tests of saving have, where no other file here has them: models of odd shapes, stores used in every way,
layers that fail, archives whole and broken."""
import json
import os
import threading
import zipfile

import h5py
import keras
import numpy as np
import pytest
import zoo
from keras import layers

import shardwright
import shardwright.keras as sk


def part(width, name):
    x = keras.Input((6,))
    return keras.Model(x, layers.Dense(width)(x), name=name)


def two_models_within():
    a, b = keras.Input((6,)), keras.Input((6,))
    return keras.Model([a, b], [part(2, "first")(a), part(3, "second")(b)])


def one_model_twice():
    a, b = keras.Input((6,)), keras.Input((6,))
    shared = part(6, "shared")
    return keras.Model([a, b], [layers.Dense(2)(shared(a)), layers.Dense(2)(shared(b))])


def layer_used_again():
    x = inputs = keras.Input((6,))
    again = layers.Dense(6)
    return keras.Model(inputs, again(layers.Dense(6)(again(x))))


def both_directions():
    x = inputs = keras.Input((6,))
    return keras.Model(inputs, layers.Bidirectional(layers.LSTM(5))(layers.Reshape((3, 2))(x)))


@keras.saving.register_keras_serializable("cases")
class SubclassedFunctional(keras.Model):
    """The functional model below, as a class, with an attribute for a layer that the graph has already."""

    def __init__(self, **options):
        x = keras.Input((6,))
        first = layers.Dense(4, name="first")
        super().__init__(inputs=x, outputs=layers.Dense(2, name="second")(first(x)), **options)
        self.another_name = first

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def plain_functional():
    x = keras.Input((6,))
    return keras.Model(x, layers.Dense(2, name="second")(layers.Dense(4, name="first")(x)))


def predictions(model):
    x = np.linspace(-1, 1, 5 * 6, dtype="float32").reshape(5, 6)
    found = model([x] * len(model.inputs) if len(model.inputs) > 1 else x, training=False)
    return [np.array(keras.ops.convert_to_numpy(y)) for y in (found if isinstance(found, (list, tuple)) else [found])]


MODELS = [two_models_within, one_model_twice, layer_used_again, both_directions, SubclassedFunctional]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_models(make, tmp_path):
    model = zoo.fill(make())
    before, expected = zoo.values(model), predictions(model)
    sk.save_model(model, tmp_path / "ours.keras")
    sk.save_model(model, tmp_path / "shards.keras", "200B")
    model.save(tmp_path / "keras.keras")
    loaded = [sk.load_model(tmp_path / name) for name in ("ours.keras", "shards.keras", "keras.keras")]
    for again in [*loaded, keras.saving.load_model(tmp_path / "ours.keras")]:
        assert zoo.same(zoo.values(again), before)
        assert all(np.array_equal(a, b) for a, b in zip(predictions(again), expected))
    zoo.spoil(model)
    model.load_weights(tmp_path / "shards.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_a_functional_model_and_its_class_share_files(tmp_path):
    for make, other in ((SubclassedFunctional, plain_functional), (plain_functional, SubclassedFunctional)):
        model, again = zoo.fill(make()), zoo.spoil(other())
        sk.save_weights(model, tmp_path / "m.weights.json", "60B")
        sk.load_weights(again, tmp_path / "m.weights.json")
        assert zoo.same(zoo.values(again), zoo.values(model))


def test_layer_under_a_property(tmp_path):
    """The file knows it under a name that has become a property."""
    class Old(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)

        def build(self, shape):
            self.dense.build(shape)
            super().build(shape)

    class New(keras.Model):
        def __init__(self):
            super().__init__()
            self.a_dense = layers.Dense(3)

        @property
        def dense(self):
            return self.a_dense

        def build(self, shape):
            self.a_dense.build(shape)
            super().build(shape)
    old, new = Old(), New()
    old.build((None, 6))
    new.build((None, 6))
    zoo.fill(old).save_weights(tmp_path / "m.weights.h5")
    sk.load_weights(new, tmp_path / "m.weights.h5")
    assert zoo.same(zoo.values(new), zoo.values(old))


def test_adapted_normalization(tmp_path):
    """Its statistics are put to use when it is loaded, not only stored."""
    def make():
        return keras.Sequential([keras.Input((6,)), layers.Normalization(), layers.Dense(2)])
    model = make()
    model.layers[0].adapt(np.random.default_rng(1).normal(3, 2, (64, 6)).astype("f4"))
    zoo.fill(keras.Sequential(model.layers[1:]))
    expected = zoo.predict(model)
    for name in ("m.weights.json", "m.weights.h5", "m.safetensors"):
        sk.save_weights(model, tmp_path / name)
        again = make()
        sk.load_weights(again, tmp_path / name)
        assert np.array_equal(zoo.predict(again), expected), name


def test_what_a_compiled_model_measures(tmp_path):
    x, y = np.linspace(-1, 1, 48, dtype="f4").reshape(8, 6), np.ones((8, 2), "f4")
    model = plain_functional()
    model.compile(optimizer=keras.optimizers.AdamW(0.01, weight_decay=0.1), loss="mse", metrics=["mae"])
    model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    sk.save_model(model, tmp_path / "m.keras", "300B")
    again = sk.load_model(tmp_path / "m.keras")
    assert again.compiled and again.optimizer.get_config() == model.optimizer.get_config()
    assert zoo.same(zoo.values(again), zoo.values(model))
    assert model.evaluate(x, y, verbose=0) == again.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)
    again.fit(x, y, batch_size=8, epochs=1, verbose=0)
    assert all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in zip(zoo.values(model), zoo.values(again)))
    assert not getattr(sk.load_model(tmp_path / "m.keras", compile=False), "compiled")


def test_lambda_with_consent(tmp_path):
    model = zoo.fill(keras.Sequential([keras.Input((6,)), layers.Lambda(lambda x: x * 2), layers.Dense(2)]))
    sk.save_model(model, tmp_path / "m.keras")
    assert np.array_equal(zoo.predict(sk.load_model(tmp_path / "m.keras", safe_mode=False)), zoo.predict(model))


# ---- stores, used in every way

class Base(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(6, 6), name="kernel")
        self.bias = self.add_weight(shape=(6,), name="bias")
        super().build(shape)

    def call(self, x):
        return x @ self.kernel + self.bias


class Store(Base):
    """Sets, looks, deletes, sets again."""

    def save_own_variables(self, store):
        store["a"] = np.zeros((900, 900), "f4")
        store["kernel"] = np.zeros(3)
        assert "a" in store and "b" not in store and len(store.keys()) == 2
        del store["a"]
        store["kernel"] = self.kernel
        store["bias"] = self.bias
        assert "a" not in store and sorted(store.keys()) == ["bias", "kernel"]

    def load_own_variables(self, store):
        assert sorted(store.keys()) == ["bias", "kernel"] and len(store) == 2 and "a" not in store
        assert {key: np.shape(value) for key, value in store.items()} == {"kernel": (6, 6), "bias": (6,)}
        assert store.get("nothing") is None
        with pytest.raises(KeyError):
            store["abc"]
        self.kernel.assign(store["kernel"])
        self.bias.assign(store["bias"])


def test_stores(tmp_path):
    model = zoo.fill(keras.Sequential([keras.Input((6,)), layers.Dense(6), Store()]))
    before = zoo.values(model)
    for name in ("m.weights.json", "m.weights.h5", "m.safetensors"):
        sk.save_weights(model, tmp_path / name)
        with shardwright.open(tmp_path / name) as checkpoint:
            assert sorted(checkpoint) == ["layers/dense/vars/0", "layers/dense/vars/1", "layers/store/vars/bias", "layers/store/vars/kernel"]
        zoo.spoil(model)
        sk.load_weights(model, tmp_path / name)
        assert zoo.same(zoo.values(model), before)


class Asking(Base):
    def load_own_variables(self, store):
        self.kernel.assign(store["weights"])


class Refusing(Base):
    def load_own_variables(self, store):
        raise ValueError("never")


@pytest.mark.parametrize("kind, text", [(Asking, "KeyError"), (Refusing, "never")])
def test_layers_that_cannot_be_loaded(kind, text, tmp_path):
    model = zoo.fill(keras.Sequential([keras.Input((6,)), layers.Dense(6), kind()]))
    sk.save_weights(model, tmp_path / "m.weights.json")
    before, files = zoo.values(model), sorted(os.listdir(tmp_path))
    with pytest.raises(sk.MismatchError, match=text):
        sk.load_weights(model, tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before) and sorted(os.listdir(tmp_path)) == files


@pytest.mark.parametrize("limit", [None, "300B"])
def test_layer_that_cannot_be_saved(limit, tmp_path):
    """Keras leaves an archive without weights; here what stood there stays."""
    class Failing(Base):
        def save_own_variables(self, store):
            raise ValueError("not today")
    sk.save_model(zoo.fill(plain_functional()), tmp_path / "m.keras", limit)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="not today"):
        sk.save_model(keras.Sequential([keras.Input((6,)), Failing()]), tmp_path / "m.keras", limit)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("path", [None, 3, b"m.weights.h5"])
def test_paths_that_are_none(path):
    for call in (sk.save_weights, sk.load_weights):
        with pytest.raises((TypeError, shardwright.Error)):
            call(plain_functional(), path)


# ---- files

def rewritten(source, target, options, byte_order="<", **file_options):
    """The same tree, as another writer of HDF5 may lay it out; without the names of layers."""
    with h5py.File(source) as old, h5py.File(target, "w", **file_options) as new:
        def copy(name, node):
            if isinstance(node, h5py.Dataset):
                values = node[()]
                chunks = {"chunks": tuple(max(1, (n + 1) // 2) for n in values.shape)} if values.ndim and options is not None else {}
                new.create_dataset(name, data=values.astype(values.dtype.newbyteorder(byte_order)), **chunks, **(options if chunks else {}))
        old.visititems(copy)


@pytest.mark.parametrize("how", [
    (None, ">", {}), ({}, "<", {}), (dict(compression="gzip", shuffle=True, fletcher32=True), ">", {}), (None, "<", {"libver": ("v110", "v110")})],
    ids=["big-endian", "chunked", "all filters", "new structures"])
def test_valid_files_of_other_writers(how, tmp_path):
    options, byte_order, file_options = how
    model = zoo.fill(zoo.trained())
    before = zoo.values(model)
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=400 / 2**30)
    model.save_weights(tmp_path / "m.weights.h5")
    (tmp_path / "other").mkdir()
    for path in list(tmp_path.glob("*.h5")):
        rewritten(path, tmp_path / "other" / path.name, options, byte_order, **file_options)
    os.rename(tmp_path / "m.weights.json", tmp_path / "other" / "m.weights.json")
    for name in ("m.weights.json", "m.weights.h5"):
        zoo.spoil(model)
        sk.load_weights(model, tmp_path / "other" / name)
        assert zoo.same(zoo.values(model), before)


def virtual(file, tmp_path):
    layout = h5py.VirtualLayout((6, 4), "f4")
    layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "x", (6, 4))
    file.create_virtual_dataset("layers/dense/vars/0", layout)


def outside(file, tmp_path):
    file.create_dataset("layers/dense/vars/0", (6, 4), "f4", external=[(str(tmp_path / "secret.bin"), 0, 96)])


def bomb(file, tmp_path):
    file.create_dataset("layers/dense/vars/0", (2**20, 2**12), "f4", chunks=(2**8, 2**8), compression="gzip")


@pytest.mark.parametrize("put", [virtual, outside, bomb], ids=lambda put: put.__name__)
def test_datasets_that_lead_elsewhere(put, tmp_path):
    model = zoo.fill(plain_functional())
    model.save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5", "a") as file:
        del file["layers/dense/vars/0"]
        put(file, tmp_path)
    before = zoo.values(model)
    with pytest.raises(shardwright.Error) as caught:
        sk.load_weights(model, tmp_path / "m.weights.h5")
    assert caught.value.tensor == "layers/dense/vars/0" and zoo.same(zoo.values(model), before)


@pytest.mark.parametrize("member", ["config.json", "assets/x/bomb"])
def test_archives_that_claim_too_much(member, tmp_path):
    sk.save_model(plain_functional(), tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as whole, zipfile.ZipFile(tmp_path / "b.keras", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as broken:
        for name in whole.namelist():
            if name != member:
                broken.writestr(name, whole.read(name), zipfile.ZIP_STORED)
        with broken.open(member, "w") as file:
            for _ in range(257):
                file.write(bytes(1 << 20))
    with pytest.raises(shardwright.CorruptError, match="claims far more"):
        sk.load_model(tmp_path / "b.keras")


def test_one_shard_alone(tmp_path):
    """What is not in it is named."""
    model = zoo.fill(zoo.sequential())
    sk.save_weights(model, tmp_path / "m.weights.json", "500B")
    before = zoo.values(model)
    with pytest.raises(sk.MismatchError, match="layers/dense_2/vars/0.*not in the file"):
        sk.load_weights(model, sorted(tmp_path.glob("*.h5"))[0])
    assert zoo.same(zoo.values(model), before)


def test_wrong_total_size_is_no_reason(tmp_path):
    model = zoo.fill(zoo.sequential())
    sk.save_weights(model, tmp_path / "m.weights.json", "500B")
    index = json.loads((tmp_path / "m.weights.json").read_text())
    index["metadata"]["total_size"] += 1
    (tmp_path / "m.weights.json").write_text(json.dumps(index))
    before = zoo.values(model)
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)
    assert "total_size" in str(shardwright.verify(tmp_path / "m.weights.json").findings[0])


def test_shards_that_an_aborted_save_left(tmp_path):
    """Keras writes over them; here they are somebody's, until overwriting is allowed, and then they go with the set."""
    model = zoo.fill(zoo.sequential())
    sk.save_weights(model, tmp_path / "m.weights.json", "500B")
    (tmp_path / "m.weights.json").unlink()
    shards = sorted(os.listdir(tmp_path))
    with pytest.raises(shardwright.AlreadyExistsError):
        sk.save_weights(model, tmp_path / "m.weights.json", "500B", overwrite=False)
    assert sorted(os.listdir(tmp_path)) == shards
    sk.save_weights(model, tmp_path / "m.weights.json", "500B")
    assert sorted(os.listdir(tmp_path)) == sorted([*shards, "m.weights.json"])


def test_archives_are_read_in_place(tmp_path):
    """Keras reads the weights through the archive, or copies them out first."""
    model = zoo.fill(keras.Sequential([keras.Input((512,)), *[layers.Dense(512) for _ in range(4)]]))
    model.save(tmp_path / "m.keras")
    payload, files = sum(array.nbytes for array in zoo.values(model)), sorted(os.listdir(tmp_path))
    loaded = sk.load_weights(model, tmp_path / "m.keras", memory="16MiB")
    assert payload <= loaded.bytes_read < payload + 200_000 and sorted(os.listdir(tmp_path)) == files


def test_loaded_by_several_threads(tmp_path):
    model = zoo.fill(zoo.sequential())
    sk.save_weights(model, tmp_path / "m.weights.json", "500B")
    models, failed = [zoo.spoil(zoo.sequential()) for _ in range(4)], []

    def load(one):
        try:
            sk.load_weights(one, tmp_path / "m.weights.json")
        except Exception as error:
            failed.append(error)
    threads = [threading.Thread(target=load, args=(one,)) for one in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and all(zoo.same(zoo.values(one), zoo.values(model)) for one in models)


def test_shapes_that_are_partly_unknown_while_tracing(tmp_path):
    """A variable that does not know its own first dimension has it from its value."""
    model = zoo.fill(plain_functional())
    model.layers[1].kernel._shape = (None, 4)
    before = zoo.values(model)
    for name in ("m.weights.json", "m.safetensors"):
        sk.save_weights(model, tmp_path / name)
        for variable in model.variables:
            variable.assign(keras.ops.ones_like(variable.value))
        sk.load_weights(model, tmp_path / name)
        assert zoo.same(zoo.values(model), before)


def test_bars_show_on_long_work_only(monkeypatch):
    """Where somebody can see them."""
    from shardwright.keras import report

    class Terminal:
        def isatty(self):
            return True
    monkeypatch.setattr(report.sys, "stderr", Terminal())
    assert report.shown("auto", 2**30) is True and report.shown("auto", 2**30 - 1) is None
    monkeypatch.setattr(report.sys, "stderr", open(os.devnull, "w"))
    assert report.shown("auto", 2**40) is None
    with pytest.raises(TypeError):
        report.shown("always", 1)
