"""Variables that lie on eight devices (see test_backends.py, which runs this file with those)."""
import pathlib
import re

import array_spy
import jax
import keras
import numpy as np
import pytest
import zoo
from keras import distribution, layers

import shardwright as sw
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
def test_shard_by_shard(distributed, name, free_first, tmp_path):
    model = zoo.fill(make())
    before, layouts = zoo.values(model), shardings(model)
    for variable in zoo.variables(model):
        variable.assign(jax.device_put(np.array(variable.value), variable.value.sharding))  # nothing gathered is kept
    # The embedding is 64 x 16, in four: one of its shards is the largest piece of anything.
    with array_spy.arrays_of_more_than(16 * 16 * 4) as found:
        sk.save_weights(model, tmp_path / name)
    assert found == [] and array_spy.gathered(v.value for v in zoo.variables(model)) == []
    zoo.spoil(model)
    for variable in zoo.variables(model):
        variable.assign(jax.device_put(np.array(variable.value), variable.value.sharding))
    with array_spy.arrays_of_more_than(16 * 16 * 4) as found:
        sk.load_weights(model, tmp_path / name, free_first=free_first)
    assert found == [] and array_spy.gathered(v.value for v in zoo.variables(model)) == []
    assert shardings(model) == layouts and zoo.same(zoo.values(model), before)
    with array_spy.arrays_of_more_than(16 * 16 * 4) as found:
        model.load_weights(tmp_path / name) if "safetensors" not in name else np.zeros((64, 16), "f4")
    assert found, "the spy sees nothing"


class Keyed(layers.Layer):
    """Keys of its own."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 48), name="kernel", initializer="zeros")
        self.offset = self.add_weight(shape=(48,), name="offset", initializer="zeros")
        super().build(shape)

    def call(self, x):
        return x @ self.kernel + self.offset

    def save_own_variables(self, store):
        store["a"], store["z"] = self.offset, self.kernel

    def load_own_variables(self, store):
        self.kernel.assign(store["z"])
        self.offset.assign(store["a"])


class Turned(Keyed):
    """A layout of its own in the file."""

    def save_own_variables(self, store):
        store["0"], store["1"] = keras.ops.transpose(self.kernel), self.offset

    def load_own_variables(self, store):
        self.kernel.assign(keras.ops.transpose(store["0"]))
        self.offset.assign(store["1"])


class Edited(Keyed):
    """Changes what it is given, which arrays of JAX refuse."""

    def load_own_variables(self, store):
        kernel = store["z"]
        kernel[:, 1::2] *= 1
        self.kernel.assign(kernel)
        self.offset.assign(store["a"])


def every_kind(custom=()):
    """A layer of each kind. Zeros, because JAX compiles every other initializer for every shape."""
    zeros = {"kernel_initializer": "zeros"}
    image, tokens = keras.Input((8, 8, 8)), keras.Input((8,), dtype="int32")
    x = layers.Conv2D(16, 3, padding="same", **zeros)(image)
    x = layers.BatchNormalization()(x)
    x = layers.DepthwiseConv2D(3, padding="same", depthwise_initializer="zeros")(x)
    x = layers.Conv2DTranspose(16, 3, **zeros)(x)
    x = layers.GlobalAveragePooling2D()(layers.GroupNormalization(4)(x))
    y = layers.Embedding(64, 16, embeddings_initializer="zeros")(tokens)
    y = layers.LayerNormalization()(layers.MultiHeadAttention(8, 4, **zeros)(y, y))
    y = layers.EinsumDense("abc,cd->abd", output_shape=(None, 16), bias_axes="d", **zeros)(y)
    x = layers.Dense(32, **zeros)(keras.ops.concatenate([x, layers.GlobalAveragePooling1D()(y)], axis=-1))
    for make_layer in custom:
        x = make_layer()(x)
    x = layers.Normalization(mean=0.0, variance=1.0)(layers.RMSNormalization()(x))
    model = keras.Model([image, tokens], layers.Dense(8, dtype="bfloat16", **zeros)(x))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


class Everything(distribution.ModelParallel):
    """Every variable by the last of its dimensions that four divides."""

    def get_variable_layout(self, variable):
        axes = [None] * len(variable.shape)
        for d in reversed(range(len(axes))):
            if variable.shape[d] % 4 == 0 and "seed" not in variable.path:
                axes[d] = "model"
                break
        return distribution.TensorLayout(axes, self.device_mesh)


def split_everything():
    mesh = distribution.DeviceMesh((2, 4), ("batch", "model"))
    return Everything(layout_map=distribution.LayoutMap(mesh), batch_dim_name="batch").scope()


@pytest.mark.parametrize("name", ["m.weights.json", "m.safetensors"])
def test_every_kind_of_layer_and_slot_by_its_layout(name, tmp_path):
    with split_everything():
        model = zoo.fill(every_kind((Keyed,)))
    split = [v for v in zoo.variables(model) if not v.value.is_fully_replicated]
    assert len(split) > 60, "slots of the optimizer among them"
    before, layouts = zoo.values(model), shardings(model)
    sk.save_weights(model, tmp_path / name)
    zoo.spoil(model)
    largest = max(shard.data.nbytes for v in zoo.variables(model) for shard in v.value.addressable_shards)
    payload = sum(v.value.nbytes for v in zoo.variables(model))
    with array_spy.arrays_of_more_than(largest) as found:
        loaded = sk.load_weights(model, tmp_path / name)
    assert found == [] and array_spy.gathered(v.value for v in zoo.variables(model)) == [] and loaded.whole == []
    assert shardings(model) == layouts and zoo.same(zoo.values(model), before)
    if name == "m.safetensors":  # HDF5 has as much between such small values
        with sw.open(tmp_path / name) as checkpoint:
            opening = checkpoint.bytes_read
        assert loaded.bytes_read - opening <= 1.02 * payload


@pytest.mark.parametrize("kind", [Keyed, Turned, Edited])
def test_loaders_of_ones_own(kind, tmp_path):
    with split_everything():
        model = zoo.fill(every_kind((kind,)))
    before, layouts = zoo.values(model), shardings(model)
    sk.save_weights(model, tmp_path / "m.weights.h5")
    zoo.spoil(model)
    loaded = sk.load_weights(model, tmp_path / "m.weights.h5")
    assert shardings(model) == layouts and zoo.same(zoo.values(model), before)
    # What no variable's shape explains, and what asks for NumPy arrays, came whole.
    assert [path.rsplit("/")[-1] for path in loaded.whole] == ([] if kind is Keyed else [kind.__name__.lower()])


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


def test_what_the_page_on_layouts_shows_runs(tmp_path, monkeypatch):
    page = (pathlib.Path(__file__).parents[3] / "docs" / "layouts.md").read_text()
    block, = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "shardwright.keras." in block]
    one = zoo.fill(make())
    sk.save_weights(one, tmp_path / "model.weights.json")
    layout_map = distribution.LayoutMap(distribution.DeviceMesh((2, 4), ("batch", "model")))
    layout_map["wide/kernel"] = (None, "model")
    monkeypatch.chdir(tmp_path)
    names = {"layout_map": layout_map, "make_model": make}
    exec(block, names)
    assert zoo.same(zoo.values(names["model"]), zoo.values(one))
    assert names["model"].get_layer("wide").kernel.value.addressable_shards[0].data.shape == (16, 8)


def test_training_after_loading(distributed, tmp_path):
    model = zoo.fill(make())
    sk.save_weights(model, tmp_path / "m.weights.json")
    sk.load_weights(model, tmp_path / "m.weights.json")
    model.fit(np.ones((8, 6), "int32"), np.ones((8, 8), "float32"), batch_size=8, verbose=0)
