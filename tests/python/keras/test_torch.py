"""What is particular to PyTorch: variables are filled where they are."""
import keras
import numpy as np
import pytest
import zoo
from keras import layers

import shardwright
import shardwright.keras as sk
from shardwright.keras import backends


def test_variables_keep_their_memory(tmp_path):
    model = zoo.fill(keras.Sequential([keras.Input((6,)), layers.Dense(300), layers.Dense(3)]))
    before = zoo.values(model)
    addresses = [v.value.data_ptr() for v in model.variables]
    sk.save_weights(model, tmp_path / "m.weights.json", "3kB")
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "m.weights.json")
    assert [v.value.data_ptr() for v in model.variables] == addresses and zoo.same(zoo.values(model), before)


def test_gradients_after_loading(tmp_path):
    model = zoo.trained()
    sk.save_weights(model, tmp_path / "m.weights.h5")
    sk.load_weights(model, tmp_path / "m.weights.h5")
    assert all(v.value.requires_grad for v in model.trainable_variables)
    zoo.train(model)


@pytest.mark.parametrize("shape", [(), (7,), (5, 3), (40, 2, 3)])
def test_devices_get_rows(shape):
    """As for an accelerator, on the CPU."""
    variable = keras.Variable(np.zeros(shape, "float32"))
    values = np.random.default_rng(0).standard_normal(shape).astype("float32")
    reads = []

    def read(start, array):
        reads.append(array.nbytes)
        array[...] = values[tuple(slice(s, s + n) for s, n in zip(start, array.shape))]
    backends.fill_torch_device(variable, read, staging_bytes=64)
    assert np.array_equal(keras.ops.convert_to_numpy(variable), values) and max(reads) <= 64


def test_layouts_need_jax():
    for call in (sk.distribute_tensor, sk.distribute_variable, sk.relayout):
        with pytest.raises(shardwright.UnsupportedError, match="Keras with torch has no layouts") as raised:
            call(keras.ops.ones((4, 4)), None)
        assert "shardwright.torch" in raised.value.hint
    symbolic = keras.Input((4,))
    assert sk.distribute_tensor(symbolic, None) is symbolic
