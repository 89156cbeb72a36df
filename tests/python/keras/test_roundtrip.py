"""Every model, through files: ours loaded by Keras, Keras's loaded by us, ours by us."""
import re

import keras
import numpy as np
import pytest
import zoo

import shardwright
import shardwright.keras as sk

LAYOUTS = ["m.weights.json", "m.weights.h5", "m.safetensors", "directory"]


def check(model, expected, prediction):
    assert zoo.same(zoo.values(model), expected)
    assert np.array_equal(zoo.predict(model), prediction, equal_nan=True)


def without_lora(model):
    """With LoRA the kernel is saved with the factors multiplied in; what comes back is that, with the factors reset."""
    return not any(getattr(layer, "lora_enabled", False) for layer in model._flatten_layers())


@pytest.fixture(scope="module", params=zoo.MODELS, ids=lambda make: make.__name__)
def made(request):
    """Once for all tests of the file: making models is most of what they cost."""
    model = request.param()
    model.make = request.param
    return model


@pytest.fixture
def model(made):
    return zoo.fill(made)


def limit_for(layout):
    return None if layout in ("m.weights.h5", "m.safetensors") else "700B"


def test_ours(model, tmp_path):
    """Saved by us, loaded by us and by Keras."""
    before, prediction = zoo.values(model), zoo.predict(model)
    if not without_lora(model):
        model.save_weights(tmp_path / "keras.weights.h5")
        model.load_weights(tmp_path / "keras.weights.h5")
        expected, prediction = zoo.values(model), zoo.predict(model)
        zoo.fill(model)
    for layout in LAYOUTS:
        summary = sk.save_weights(model, tmp_path / layout, limit_for(layout))
        assert zoo.same(zoo.values(model), before), "saving changed the model"
        zoo.spoil(model)
        loaded = sk.load_weights(model, tmp_path / layout)
        assert loaded.skipped == [] and loaded.weights == summary.tensors
        check(model, before if without_lora(model) else expected, prediction)
        if layout.startswith("m.weights"):
            zoo.spoil(model)
            model.load_weights(tmp_path / layout)
            check(model, before if without_lora(model) else expected, prediction)
        zoo.fill(model)


def test_keras_own(model, tmp_path):
    """Saved by Keras, loaded by us."""
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=3000 / 2**30)
    model.save_weights(tmp_path / "m.weights.h5")
    zoo.spoil(model)
    model.load_weights(tmp_path / "m.weights.h5")
    by_keras, prediction = zoo.values(model), zoo.predict(model)
    for name in ("m.keras", "m.weights.json", "m.weights.h5"):
        zoo.spoil(model)
        assert sk.load_weights(model, tmp_path / name).skipped == []
        check(model, by_keras, prediction)


def test_list_of_shards_and_names(model, tmp_path):
    """Without the index, in any order; and what weights_of() says is what is there."""
    before = zoo.values(model)
    rows = sk.weights_of(model)
    summary = sk.save_weights(model, tmp_path / "m.weights.json", f"{max(array.nbytes for array in before)}B")
    with shardwright.open(tmp_path / "m.weights.json") as checkpoint:
        assert sorted(row.name for row in rows) == sorted(checkpoint)
        for row in rows:
            assert checkpoint[row.name].shape == row.shape and checkpoint[row.name].dtype.name == row.dtype
            if row.variable is not None and without_lora(model):
                assert row.path == row.variable.path
                assert np.array_equal(np.asarray(checkpoint[row.name]), keras.ops.convert_to_numpy(row.variable.value))
    (tmp_path / "m.weights.json").unlink()
    files = [tmp_path / name for name, _ in summary.files if name.endswith(".h5")]
    assert len(files) > 1
    zoo.spoil(model)
    sk.load_weights(model, files[::-1])
    assert zoo.same(zoo.values(model), before) or not without_lora(model)


@pytest.mark.parametrize("make", [zoo.subclassed, zoo.trained, zoo.quantized], ids=lambda make: make.__name__)
def test_a_new_model_gets_it_all(make, tmp_path):
    """Nothing stays behind in the object that was saved."""
    model = zoo.fill(make())
    before, prediction = zoo.values(model), zoo.predict(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "1kB")
    other = make()
    sk.load_weights(other, tmp_path / "m.weights.json")
    check(other, before, prediction)


def test_weights_by_paths_of_variables(tmp_path):
    """A safetensors file that speaks of kernels instead of positions."""
    model = zoo.fill(zoo.functional())
    before = zoo.values(model)
    shardwright.save(tmp_path / "m.safetensors", {row.path: keras.ops.convert_to_numpy(row.variable.value) for row in sk.weights_of(model)})
    zoo.spoil(model)
    assert sk.load_weights(model, tmp_path / "m.safetensors").weights == len(before)
    assert zoo.same(zoo.values(model), before)


def test_renames_between_names_and_paths(tmp_path):
    """What weights_of() says is enough to make one of the other, and back."""
    model = zoo.fill(zoo.trained())
    before, rows = zoo.values(model), sk.weights_of(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "300B")
    shardwright.copy(tmp_path / "m.weights.json", tmp_path / "paths.safetensors", rename={f"^{re.escape(row.name)}$": row.path for row in rows})
    with shardwright.open(tmp_path / "paths.safetensors") as checkpoint:
        assert sorted(checkpoint) == sorted(row.path for row in rows)
    shardwright.copy(tmp_path / "paths.safetensors", tmp_path / "n.weights.json", max_shard_size=400,
                     rename={f"^{re.escape(row.path)}$": row.name for row in rows})
    for load in (lambda: sk.load_weights(model, tmp_path / "paths.safetensors"), lambda: model.load_weights(tmp_path / "n.weights.json")):
        zoo.spoil(model)
        load()
        assert zoo.same(zoo.values(model), before)
