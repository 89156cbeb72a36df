"""Variables that lie on eight devices (see test_backends.py, which runs this file with those)."""
import jax
import keras
import numpy as np
import pytest
import zoo
from keras import distribution, layers

import shardwright.keras as sk

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")


@pytest.fixture
def distributed():
    mesh = distribution.DeviceMesh((2, 4), ("batch", "model"))
    layout = distribution.LayoutMap(mesh)
    layout["wide/kernel"] = (None, "model")
    layout["wide/bias"] = ("model",)
    layout["tall/kernel"] = ("model", "batch")
    layout["embedding/embeddings"] = (("model"), None)
    with distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope():
        yield


def make():
    x = inputs = keras.Input((6,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(64, 16, name="embedding")(x))
    x = layers.Dense(32, name="wide")(x)
    model = keras.Model(inputs, layers.Dense(8, name="tall")(x))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def shardings(model):
    return [v.value.sharding for v in zoo.variables(model)]


@pytest.mark.parametrize("name", ["m.weights.json", "m.weights.h5", "m.safetensors"])
@pytest.mark.parametrize("free_first", [False, True])
def test_shard_by_shard(distributed, name, free_first, tmp_path, monkeypatch):
    model = zoo.fill(make())
    before, layouts = zoo.values(model), shardings(model)
    for variable in zoo.variables(model):
        variable.assign(jax.device_put(np.array(variable.value), variable.value.sharding))  # nothing gathered is kept
    whole = []
    original = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda x, *a, **k: whole.append(np.shape(x)) or original(x, *a, **k))
    sk.save_weights(model, tmp_path / name)
    assert all(getattr(v.value, "_npy_value", None) is None for v in zoo.variables(model) if not v.value.is_fully_replicated)
    monkeypatch.undo()
    zoo.spoil(model)
    monkeypatch.setattr(jax, "device_put", lambda x, *a, **k: whole.append(np.shape(x)) or original(x, *a, **k))
    sk.load_weights(model, tmp_path / name, free_first=free_first)
    monkeypatch.undo()
    assert (64, 16) not in whole and (16, 16) in whole, "the embedding came as a whole"
    assert shardings(model) == layouts and zoo.same(zoo.values(model), before)


def test_between_layouts(distributed, tmp_path):
    """Saved from eight devices, loaded onto one, and back."""
    model = zoo.fill(make())
    before, layouts = zoo.values(model), shardings(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "2kB")
    with distribution.DataParallel().scope():
        other = make()
    sk.load_weights(other, tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(other), before)
    sk.save_weights(other, tmp_path / "o.weights.h5")
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "o.weights.h5")
    assert zoo.same(zoo.values(model), before) and shardings(model) == layouts
    zoo.spoil(model)
    model.load_weights(tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_training_after_loading(distributed, tmp_path):
    model = zoo.fill(make())
    sk.save_weights(model, tmp_path / "m.weights.json")
    sk.load_weights(model, tmp_path / "m.weights.json")
    model.fit(np.ones((8, 6), "int32"), np.ones((8, 8), "float32"), batch_size=8, verbose=0)
