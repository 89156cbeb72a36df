"""shardwright.keras.CheckpointCallback and what restores its steps. What is wrong with Keras's OrbaxCheckpoint is right here."""
import functools
import math
import pathlib
import runpy
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers
from zoo import values

import shardwright
import shardwright.keras as sk

X = np.linspace(-1, 1, 8 * 6, dtype="float32").reshape(8, 6)
Y = np.ones((8, 2), "float32")


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def sequential(name="sq"):
    keras.utils.set_random_seed(1)
    return compiled(keras.Sequential([keras.Input((6,)), layers.Dense(4, name="a"), layers.BatchNormalization(name="norm"),
                                      layers.Dropout(0.5, name="drop"), layers.Dense(2, name="b")], name=name))


def functional(names=("a", "b")):
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((6,), name="in")
    for name in names:
        x = layers.Dense(2, name=name)(x)
    return compiled(keras.Model(inputs, x, name="fn"))


def compiled(model):
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


def fit(model, *callbacks, epochs=2, first=0, **more):
    model.fit(X, Y, batch_size=2, epochs=epochs, initial_epoch=first, shuffle=False, verbose=0, callbacks=list(callbacks), **more)
    return model


def drive(callback, model, losses, name="val_loss", first=0):
    """What fit() calls at the ends of epochs, without the training."""
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, loss in enumerate(losses, first):
        callback.on_epoch_begin(epoch)
        callback.on_epoch_end(epoch, {} if loss is None else {name: loss})
    callback.on_train_end()


def steps(run):
    with shardwright.CheckpointManager(run, item="pytree") as manager:
        return manager.all_steps()


def metric_values(model):
    return {v.path: float(keras.ops.convert_to_numpy(v.value)) for v in model.metrics_variables}


def same(model, expected):
    found = values(model)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


# ---- arguments

@pytest.mark.parametrize("argument", [
    {"save_freq": 0}, {"save_freq": -1}, {"save_freq": True}, {"save_freq": 1.5}, {"save_freq": "batch"}, {"mode": "best"}, {"max_to_keep": 0},
    {"max_to_keep": -1}, {"max_to_keep": "3"}, {"save_on_background": 1}, {"save_best_only": "yes"}, {"save_weights_only": None}, {"verbose": 2},
    {"monitor": ""}, {"initial_value_threshold": "0.5"}, {"initial_value_threshold": math.nan}, {"metadata": 3}, {"iterator_state": 3},
    {"keep_last": 3}, {"item": "state"}, {"keep_every": 0}, {"lower": "up"}, {"format": "hdf5x"}])
def test_arguments_that_cannot_be_meant(run, argument):
    with pytest.raises(shardwright.InvalidArgumentError):
        callback = sk.CheckpointCallback(run, **argument)
        drive(callback, functional(), [1.0])
    assert not run.exists()


def test_a_package_that_is_missing_is_named():
    code = "import sys; sys.modules['keras'] = None; import shardwright.keras"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: shardwright.keras needs keras, which is not installed: pip install keras"


@pytest.mark.parametrize("backend", ["tensorflow", "numpy", "openvino"])
def test_other_backends_are_named(run, monkeypatch, backend):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    with pytest.raises(shardwright.UnsupportedError, match=f"Keras with {backend}.*JAX or the PyTorch"):
        sk.CheckpointCallback(run)


def test_a_distribution_of_keras_with_torch_is_refused(run, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    monkeypatch.setattr(keras.distribution, "distribution", lambda: object())
    with pytest.raises(shardwright.UnsupportedError, match="PyTorch"):
        sk.CheckpointCallback(run)


# ---- what is restored

def test_sequential_models_optimizers_and_metrics_come_back(run, capsys):
    """Keras restores nothing of a Sequential, and says nothing."""
    callback = sk.CheckpointCallback(run, verbose=1, metadata={"by": "me"})
    model = fit(sequential(), callback, validation_data=(X, Y))
    assert capsys.readouterr().out.count(": saves step") == 2
    expected, metrics = values(model), metric_values(model)
    assert steps(run) in ([0, 1], [1])
    same(sk.load_model(run), expected)
    again = fit(sequential(name="another_name"), epochs=1, validation_data=(X, Y))
    restored = sk.restore(again, run)
    same(again, expected)
    assert restored.step == 1 and restored.initial_epoch == 2 and restored.metadata["by"] == "me" and restored.skipped == []
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(restored.metrics)
    # After an epoch's validation the metrics hold what that left.
    assert metric_values(again) == metrics
    fresh = sequential()
    assert sk.restore(fresh, run / "1").skipped  # metrics that are not built
    same(fresh, expected)
    seeds = [v for v in fresh.variables if "seed" in v.path]
    assert seeds and all((keras.ops.convert_to_numpy(a) == keras.ops.convert_to_numpy(b)).all()
                         for a, b in zip(seeds, [v for v in model.variables if "seed" in v.path]))


def test_training_goes_on_bit_for_bit(run):
    """Random states of Dropout included; step numbers go on, though fit() counts from 0 again."""
    at_once = fit(sequential(), epochs=4)
    callback = sk.CheckpointCallback(run, monitor="loss", max_to_keep=None)
    assert callback.resume(sequential()) == 0
    fit(sequential(), callback, epochs=2)
    model, resumed = sequential(), sk.CheckpointCallback(run, monitor="loss", max_to_keep=None)
    first = resumed.resume(model)
    assert first == 2 and resumed.restored.step == 1
    fit(model, resumed, epochs=4, first=first)
    same(model, values(at_once))
    fit(model, resumed, epochs=1)  # a second fit() with the same callback
    assert steps(run) == [0, 1, 2, 3, 4]


def test_what_does_not_fit_is_named_and_nothing_is_changed(run):
    """Keras leaves what it cannot place at random values, and says nothing."""
    drive(sk.CheckpointCallback(run), functional(), [1.0])
    for names, lines in ((("a", "renamed"), ["'renamed/kernel'", "'b/kernel'"]), (("a", "b", "c"), ["'c/kernel'"]), (("a",), ["'b/kernel'"])):
        model = functional(names)
        before = values(model)
        with pytest.raises(sk.MismatchError) as raised:
            sk.restore(model, run)
        assert all(any(line in problem for problem in raised.value.problems) for line in lines), raised.value.problems
        same(model, before + values(model)[len(before):])
    wide = compiled(keras.Sequential([keras.Input((6,)), layers.Dense(3, name="a"), layers.Dense(2, name="b")]))
    with pytest.raises(sk.MismatchError, match=r"a/kernel'.*\[6, 2\] in the file, \[6, 3\] in the model"):
        sk.restore(wide, run, optimizer=False)
    with pytest.warns(UserWarning, match="left out"):
        assert len(sk.restore(wide, run, optimizer=False, skip_mismatch=True).skipped) >= 3


def test_models_without_an_optimizer(run):
    """Keras needs a compiled model, to load weights too."""
    model = fit(functional(), sk.CheckpointCallback(run, save_weights_only=True), epochs=1)
    plain = keras.Model(model.inputs, model.outputs)
    bare = functional()
    bare.optimizer = None
    assert sk.restore(bare, run).step == 0
    same(bare, values(plain))
    with pytest.raises(sk.MismatchError, match="no optimizer"):
        sk.restore(bare, run, optimizer=True)
    with pytest.warns(UserWarning, match="has no variables of an optimizer"):
        sk.restore(functional(), run)
    with pytest.raises(shardwright.NotFoundError, match="save_weights_only"):
        sk.load_model(run)
    unbuilt = compiled(keras.Sequential([layers.Dense(2)]))
    with pytest.raises(shardwright.InvalidArgumentError, match="must be built"):
        sk.restore(unbuilt, run)


def test_a_frozen_layer_is_the_same_layer(run):
    model = functional()
    drive(sk.CheckpointCallback(run), model, [1.0])
    frozen = functional()
    frozen.layers[1].trainable = False
    sk.restore(frozen, run, optimizer=False)
    same(frozen, values(model)[:len(values(frozen))])


def test_what_an_optimizer_kept_for_a_frozen_layer_is_left_out(run):
    model = fit(functional(), sk.CheckpointCallback(run, monitor="loss"))
    frozen = functional()
    frozen.layers[1].trainable = False
    compiled(frozen)
    left = [line for line in sk.restore(frozen, run).skipped if "not trained any more" in line]
    assert len(left) == 4 and all("'a/" in line for line in left)
    slots = {v.path.partition("/")[2]: np.asarray(v) for v in model.optimizer.variables}
    kept = {v.path.partition("/")[2]: np.asarray(v) for v in frozen.optimizer.variables}
    assert len(kept) == len(slots) - 4 and all(np.array_equal(value, slots[name]) for name, value in kept.items())


@pytest.mark.parametrize("model", [None, "model", 3])
def test_what_is_no_model(run, model):
    drive(sk.CheckpointCallback(run), functional(), [1.0])
    with pytest.raises(shardwright.InvalidArgumentError, match="no model of Keras"):
        sk.restore(model, run)
    with pytest.raises(shardwright.UnsupportedError, match="addresses"):
        sk.restore(functional(), "gs://bucket/run")


def test_two_variables_of_one_path_are_refused_before_anything_is_trained(run):
    class Twice(layers.Layer):
        def build(self, shape):
            self.one, self.two = (self.add_weight(shape=(1,), name="w") for _ in range(2))

        def call(self, x):
            return x * self.one * self.two
    model = compiled(keras.Sequential([keras.Input((6,)), Twice(name="t"), layers.Dense(2)]))
    with pytest.raises(shardwright.InvalidArgumentError, match="one path"):
        drive(sk.CheckpointCallback(run), model, [1.0])


@keras.saving.register_keras_serializable("callback")
class Vocabulary(layers.Layer):
    words = "one\ntwo"

    def call(self, x):
        return x

    def save_assets(self, directory):
        with open(f"{directory}/words.txt", "w", encoding="utf-8") as file:
            file.write(self.words)

    def load_assets(self, directory):
        with open(f"{directory}/words.txt", encoding="utf-8") as file:
            self.words = file.read()


def with_assets():
    model = compiled(keras.Sequential([keras.Input((6,)), Vocabulary(name="words"), layers.Dense(2, name="a")]))
    model.optimizer.build(model.trainable_variables)
    model.layers[0].words = "three\nfour"
    return model


@pytest.mark.parametrize("format", ["orbax", "safetensors", "keras-h5"])
def test_assets_and_any_format(run, format):
    model = with_assets()
    drive(sk.CheckpointCallback(run, format=format), model, [1.0])
    again = sk.load_model(run)
    same(again, values(model))
    assert again.layers[0].words == "three\nfour"


def test_any_step_can_be_chosen(run):
    model = functional()
    callback = sk.CheckpointCallback(run, max_to_keep=None)
    for epoch, loss in enumerate([3.0, 1.0, 2.0]):
        model.layers[-1].bias.assign([epoch, epoch])
        drive(callback, model, [loss], first=epoch)
    (run / "7").mkdir()  # a step to Keras
    with shardwright.CheckpointManager(run) as manager, manager.open() as checkpoint:  # by its only item of arrays
        assert "trainable_variables.a.kernel" in checkpoint
    for step, bias in ((None, 2), (0, 0), ("best:val_loss", 1), ("best:val_loss:max", 0), ("latest", 2)):
        again = functional()
        sk.restore(again, run, step)
        assert float(keras.ops.convert_to_numpy(again.layers[-1].bias)[0]) == bias
    again = functional()
    assert callback.resume(again, "best") == 2 and callback.restored.step == 1
    with pytest.raises(shardwright.NotFoundError, match="there is no step 5"):
        sk.load_model(run, step=5)
    with pytest.raises(shardwright.InvalidArgumentError, match="that of a step"):
        sk.restore(again, run / "1", 1)
    with pytest.raises(shardwright.NotFoundError, match="no such directory"):
        sk.restore(again, run / "none")
    (run / "empty").mkdir()
    with pytest.raises(shardwright.NotFoundError, match="no complete step"):
        sk.restore(again, run / "empty")
    data = max((run / "2" / "pytree" / "d").iterdir(), key=lambda p: p.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    before = values(again)
    with pytest.raises(shardwright.CorruptError):
        sk.restore(again, run, verify=True)
    same(again, before)


def test_the_example_goes_on_where_it_stopped(run, capsys):
    main = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "keras_training.py"))["main"]
    for epochs, begins in ((1, "loss"), (2, "goes on after step 0")):
        keras.utils.clear_session()
        main(str(run), epochs)
        assert capsys.readouterr().out.startswith(begins)


# ---- when is saved

def test_batches_are_counted_over_epochs_and_runs(run):
    callback = sk.CheckpointCallback(run, monitor="loss", save_freq=3, max_to_keep=None)
    model = fit(sequential(), callback, epochs=3)  # of 4 batches
    assert steps(run) == [3, 6, 9, 12]
    model, resumed = sequential(), sk.CheckpointCallback(run, monitor="loss", save_freq=3, max_to_keep=None)
    assert resumed.resume(model) == 3 and resumed.restored.batches == 12  # its last batch was the epoch's
    assert resumed.resume(sequential(), 9) == 2
    resumed.resume(model)
    fit(model, resumed, epochs=4, first=3)
    assert steps(run) == [3, 6, 9, 12, 15]


def test_the_last_batch_of_an_epoch_whose_length_is_not_known(run):
    def batches():
        for _ in range(3):
            yield X, Y
    callback = sk.CheckpointCallback(run, monitor="loss", save_freq=3)
    functional().fit(batches(), epochs=1, verbose=0, callbacks=[callback])
    assert steps(run) == [3] and sk.CheckpointCallback(run, save_freq=3).resume(functional()) == 1


def test_several_steps_in_one_execution(run):
    model = functional()
    callback = sk.CheckpointCallback(run, monitor="loss", save_freq=3, max_to_keep=None)
    callback.set_model(model)
    callback.on_train_begin()
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        for batch in (1, 3, 5):
            callback.on_train_batch_end(batch, {"loss": 1.0})
    callback.on_train_end()
    assert steps(run) == [4, 8, 12]


def test_the_best_only(run):
    drive(sk.CheckpointCallback(run, save_best_only=True, max_to_keep=None), functional(), [3.0, 1.0, math.nan, 2.0, 0.5])
    assert steps(run) == [0, 1, 4]
    # What was the best before is what a later run has to beat.
    again = sk.CheckpointCallback(run, save_best_only=True, max_to_keep=None)
    drive(again, functional(), [0.7, 0.4], first=again.resume(functional()))
    assert steps(run) == [0, 1, 4, 6]


def test_a_first_value_that_is_none_and_thresholds(run):
    drive(sk.CheckpointCallback(run, save_best_only=True, initial_value_threshold=2, max_to_keep=2), functional(), [math.nan, 3.0, 1.0, 2.0])
    assert steps(run) == [2]
    drive(sk.CheckpointCallback(run / "nan", save_best_only=True), functional(), [math.nan, 1.0])
    assert steps(run / "nan") == [1]
    drive(sk.CheckpointCallback(run / "max", monitor="val_mae", mode="max", save_best_only=True, max_to_keep=2), functional(), [1.0, 3.0, 2.0, 4.0],
          "val_mae")
    assert steps(run / "max") == [1, 3]


def test_the_best_of_batches(run):
    """TypeError in Keras."""
    callback = sk.CheckpointCallback(run, monitor="loss", save_freq=1, save_best_only=True, max_to_keep=None)
    callback.set_model(functional())
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for batch, loss in enumerate([3.0, 1.0, 2.0, 0.5]):
        callback.on_train_batch_end(batch, {"loss": loss})
    callback.on_train_end()
    assert steps(run) == [1, 2, 4]


def test_a_directory_is_where_it_was_when_training_goes_elsewhere(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    callback = sk.CheckpointCallback("run")
    monkeypatch.chdir("/")
    drive(callback, functional(), [1.0])
    assert steps(run) == [0]


def test_a_metric_that_is_missing(run):
    callback = sk.CheckpointCallback(run, monitor="val_loss", save_best_only=True)
    with pytest.warns(UserWarning, match="no 'val_loss' to know the best by, only loss"):
        drive(callback, functional(), [1.0], "loss")
    assert steps(run) == []


@pytest.mark.parametrize("mode", ["min", "auto"])
def test_a_metric_that_never_appears_is_said_once(run, mode):
    callback = sk.CheckpointCallback(run, monitor="nope", mode=mode)
    with pytest.warns(UserWarning) as said:
        drive(callback, functional(), [1.0, 2.0], "loss")
    texts = [str(warning.message) for warning in said]
    assert sum("none of the best: the logs have no 'nope', only loss" in text for text in texts) == 1
    assert sum("cannot be told" in text for text in texts) == (mode == "auto")
    assert steps(run) == [1]


def test_a_mode_that_cannot_be_told_is_said_before_anything_is_trained(run):
    callback = sk.CheckpointCallback(run, monitor="val_quality", save_best_only=True)
    with pytest.raises(shardwright.InvalidArgumentError, match="'val_quality' should be large or small"):
        fit(functional(), callback, epochs=1)
    drive(sk.CheckpointCallback(run, monitor="val_quality"), functional(), [1.0, 2.0], "val_quality")
    assert steps(run) == [1]


def test_the_newest_and_the_best_stay(run):
    drive(sk.CheckpointCallback(run, max_to_keep=1), functional(), [3.0, 1.0, 2.0, 4.0])
    assert steps(run) == [1, 3]
    drive(sk.CheckpointCallback(run / "few", save_best_only=True, max_to_keep=2), functional(), [4.0, 3.0, 2.0, 1.0])
    assert steps(run / "few") == [2, 3]


# ---- directories that are used again, and failures

def test_a_used_directory_is_refused_before_anything_is_trained(run):
    """Keras saves nothing, silently, or stops when the numbers meet."""
    drive(sk.CheckpointCallback(run, max_to_keep=None), functional(), [3.0, 2.0, 1.0])
    seen = []
    with pytest.raises(shardwright.AlreadyExistsError, match="later steps than 0"):
        fit(functional(), sk.CheckpointCallback(run), keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: seen.append(1)))
    with pytest.raises(shardwright.AlreadyExistsError, match="later steps than 1"):
        fit(functional(), sk.CheckpointCallback(run, save_freq=2))
    assert seen == [] and steps(run) == [0, 1, 2]
    branch = sk.CheckpointCallback(run, max_to_keep=None, lower="branch", save_best_only=True)
    model = functional()
    drive(branch, model, [2.5, 2.9], first=branch.resume(model, 0))
    assert steps(run) == [0, 1] and branch.best == 2.5
    assert sorted(p.name for p in (run / ".branches" / "0").iterdir()) == ["1", "2"]


def test_failures_in_the_background_are_raised(run, monkeypatch):
    """Keras swallows them at the end of training."""
    late = functools.partialmethod(shardwright.CheckpointManager.save, within=-1)  # ends in the background, when nothing can be done by then
    monkeypatch.setattr(shardwright.CheckpointManager, "save", late)
    with pytest.raises(shardwright.AbortedError):
        drive(sk.CheckpointCallback(run), functional(), [1.0])
    with pytest.raises(shardwright.AbortedError):
        drive(sk.CheckpointCallback(run, save_on_background=False), functional(), [1.0])
    assert steps(run) == []


def test_an_exception_in_training_loses_no_step(run):
    class Stops(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyError("of the loop")
    callback = sk.CheckpointCallback(run, max_to_keep=None)
    with pytest.raises(KeyError):
        fit(functional(), callback, Stops(), epochs=3)
    callback.wait_until_finished()
    assert steps(run) == [0, 1]


def test_metadata_and_the_iterator(run):
    class Batches:
        at = 0

        def get_state(self):
            return {"at": self.at}

        def set_state(self, state):
            self.at = state["at"]
    batches = Batches()
    callback = sk.CheckpointCallback(run, save_on_background=False, metadata=lambda epoch, logs: {"epoch": epoch, "loss": logs["val_loss"]},
                                     iterator_state=batches)
    batches.at = 5
    model = functional()
    drive(callback, model, [1.5])
    batches.at = 9
    callback.resume(model)
    assert batches.at == 5 and callback.restored.metadata["epoch"] == 0 and callback.restored.metadata["loss"] == 1.5
    taken = sk.CheckpointCallback(run, metadata={"fit": 1})
    with pytest.raises(shardwright.InvalidArgumentError, match="'fit' already"):
        drive(taken, model, [1.0], first=taken.resume(model))
    with shardwright.CheckpointManager(run, item="pytree") as manager:
        assert manager.iterator_state() == {"at": 5}


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="JAX has no random state of the process")
def test_random_states_are_of_a_process(run, monkeypatch):
    drive(sk.CheckpointCallback(run), functional(), [1.0])
    monkeypatch.setattr(shardwright.CheckpointManager, "position", lambda self: (1, 2))
    callback = sk.CheckpointCallback(run)
    with pytest.warns(UserWarning, match="step 0 has the random states of another number of processes"):
        drive(callback, functional(), [0.5], first=callback.resume(functional()))
    assert (run / "1" / "random_1_of_2").is_dir()


def test_a_model_without_a_configuration_is_saved_all_the_same(run):
    class Plain(keras.Model):
        def __init__(self, width):
            super().__init__()
            self.dense = layers.Dense(width, name="d")

        def call(self, x):
            return self.dense(x)

        def get_config(self):
            raise NotImplementedError("no configuration")
    model = compiled(Plain(2))
    model(X)
    with pytest.warns(UserWarning, match="no configuration"):
        drive(sk.CheckpointCallback(run), model, [1.0])
    again = compiled(Plain(2))
    again(X)
    sk.restore(again, run)
    same(again, values(model))
