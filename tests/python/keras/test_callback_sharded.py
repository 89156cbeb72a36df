"""CheckpointCallback with models that lie on eight devices (see test_backends.py, which runs this file with those)."""
import jax
import keras
import numpy as np
import pytest
from keras import distribution, layers
from zoo import values

import shardwright.keras as sk

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
X, Y = np.linspace(-1, 1, 16 * 8, dtype="float32").reshape(16, 8), np.ones((16, 8), "float32")


def make():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((8,)), layers.Dense(32, name="wide"), layers.Dropout(0.5, name="drop"), layers.Dense(8, name="tall")])
    model.compile("adam", "mse")
    return model


def model_parallel(data=2, model=4):
    devices = distribution.list_devices()[:data * model]
    mesh = distribution.DeviceMesh((data, model), ("batch", "model"), devices)
    layout = distribution.LayoutMap(mesh)
    layout["wide/kernel"], layout["wide/bias"], layout["tall/kernel"] = (None, "model"), ("model",), ("model", None)
    return distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def train(model, *callbacks, epochs=2, first=0):
    keras.utils.set_random_seed(3)
    model.fit(X, Y, batch_size=8, epochs=epochs, initial_epoch=first, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model


def shardings(model):
    return [v.value.sharding for v in [*model.variables, *model.optimizer.variables]]


@pytest.mark.parametrize("kind", ["data", "model"])
def test_goes_on_under_a_distribution(kind, tmp_path):
    with (distribution.DataParallel() if kind == "data" else model_parallel()).scope():
        at_once = train(make(), epochs=3)
        train(make(), sk.CheckpointCallback(tmp_path / "run", monitor="loss"))
        model, callback = make(), sk.CheckpointCallback(tmp_path / "run", monitor="loss")
        train(model, callback, epochs=3, first=callback.resume(model))
        assert shardings(model) == shardings(at_once)
        for a, b in zip(values(model), values(at_once)):
            assert a.tobytes() == b.tobytes()


def test_from_any_layout_to_any(tmp_path):
    """Keras gives a model without a distribution arrays on the devices that the saved one had."""
    layouts = [model_parallel(), model_parallel(1, 2), None]
    for number, saved in enumerate(layouts):
        run = tmp_path / str(number)
        with scope(saved):
            expected = values(train(make(), sk.CheckpointCallback(run, monitor="loss"), epochs=1))
        for target in layouts:
            with scope(target):
                model = make()
                model.optimizer.build(model.trainable_variables)
                before = shardings(model)
                sk.restore(model, run)
                assert shardings(model) == before
                for a, b in zip(values(model), expected):
                    assert a.tobytes() == b.tobytes()


def scope(kind):
    import contextlib
    return contextlib.nullcontext() if kind is None else kind.scope()
