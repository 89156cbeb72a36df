"""Steps of shardwright.keras.CheckpointCallback and of Keras's OrbaxCheckpoint: each is read by the other."""
import keras
import numpy as np
import pytest
from test_callback import X, drive, fit, functional, same, steps
from test_callback import sequential as sequential_of
from test_callback import with_assets
from zoo import values

import shardwright
import shardwright.keras as sk

pytest.importorskip("orbax.checkpoint")
if keras.backend.backend() != "jax":
    pytest.skip("of the JAX backend", allow_module_level=True)


def test_keras_loads_ours(tmp_path):
    run = tmp_path / "run"
    callback = sk.CheckpointCallback(run, monitor="loss", metadata={"a": 1}, iterator_state=lambda: {"at": 3})
    model = fit(functional(), callback)
    found = keras.saving.load_model(run)
    same(found, values(model))
    assert np.array_equal(found.predict(X, verbose=0), model.predict(X, verbose=0))
    keras.utils.clear_session()  # Keras finds nothing of an optimizer that is called adam_1
    again = functional()
    again.optimizer.build(again.trainable_variables)
    again.load_weights(run)
    same(again, values(model))
    assets = with_assets()
    drive(sk.CheckpointCallback(tmp_path / "assets"), assets, [1.0])
    assert keras.saving.load_model(tmp_path / "assets").layers[0].words == "three\nfour"


def test_keras_loads_a_sequential_by_its_weights_alone(tmp_path):
    """docs/keras_training.md says so: when the first line fails, Keras has mended it."""
    model = fit(sequential_of(), sk.CheckpointCallback(tmp_path, monitor="loss"))
    assert not np.array_equal(values(keras.saving.load_model(tmp_path))[0], values(model)[0])
    again = sequential_of()
    again.load_weights(tmp_path)
    assert all(map(np.array_equal, again.get_weights(), model.get_weights()))
    same(sk.load_model(tmp_path), values(model))


def test_ours_reads_and_continues_theirs(tmp_path):
    run = tmp_path / "run"
    model = fit(sequential_of(), keras.callbacks.OrbaxCheckpoint(str(run), max_to_keep=None))
    assert steps(run) == [0, 1]
    same(sk.load_model(run), values(model))  # Keras itself gives a Sequential back as it began
    again, callback = sequential_of(), sk.CheckpointCallback(run, monitor="loss", max_to_keep=None)
    assert callback.resume(again) == 2
    same(again, values(model))
    fit(again, callback, epochs=3, first=2)
    assert steps(run) == [0, 1, 2]
    same(sk.load_model(run / "2"), values(again))
    names = list(shardwright.open(run / "1"))  # opened whole: its configuration holds text alone
    assert any(name.startswith("pytree/trainable_variables.") for name in names), names[:3]


def test_keras_continues_ours_and_ours_that(tmp_path):
    run = tmp_path / "run"
    fit(functional(), sk.CheckpointCallback(run, monitor="loss", max_to_keep=None, iterator_state=lambda: {"at": 3}))
    keras.utils.clear_session()  # Keras finds nothing of an optimizer that is called adam_1
    theirs = functional()
    theirs.optimizer.build(theirs.trainable_variables)
    theirs.load_weights(run)
    fit(theirs, keras.callbacks.OrbaxCheckpoint(str(run), max_to_keep=2), epochs=3, first=2)
    assert steps(run) == [1, 2]  # it removes what it keeps no more, whoever wrote it
    model, callback = functional(), sk.CheckpointCallback(run, monitor="loss", max_to_keep=2)
    assert callback.resume(model) == 3
    same(model, values(theirs))
    fit(model, callback, epochs=4, first=3)
    assert steps(run) == [2, 3]
    same(model, values(fit(functional(), epochs=4)))


def test_ours_reads_their_assets_and_weights_alone(tmp_path):
    model = with_assets()
    theirs = keras.callbacks.OrbaxCheckpoint(str(tmp_path / "assets"))
    drive(theirs, model, [1.0])
    assert sk.load_model(tmp_path / "assets").layers[0].words == "three\nfour"
    drive(keras.callbacks.OrbaxCheckpoint(str(tmp_path / "weights"), save_weights_only=True), model, [1.0])
    again = with_assets()
    with pytest.warns(UserWarning, match="optimizer"):
        sk.restore(again, tmp_path / "weights")
    same(again, values(model))
