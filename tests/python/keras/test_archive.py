"""Whole models: .keras with the weights inside, and with the weights in shards beside it."""
import errno
import json
import os
import zipfile

import keras
import numpy as np
import pytest
import zoo
from keras import layers

import shardwright
import shardwright.keras as sk


def words():
    """A layer with a file of its own."""
    @keras.saving.register_keras_serializable("archive")
    class Words(layers.Layer):
        text = "none"

        def build(self, shape):
            self.kernel = self.add_weight(shape=(6,), name="kernel")
            super().build(shape)

        def call(self, x):
            return x * self.kernel

        def save_assets(self, folder):
            with open(os.path.join(folder, "words.txt"), "w") as file:
                file.write(self.text)

        def load_assets(self, folder):
            with open(os.path.join(folder, "words.txt")) as file:
                self.text = file.read()
    model = keras.Sequential([keras.Input((6,)), Words(), layers.Dense(2)])
    model.layers[0].text = "one two"
    return model


@pytest.mark.parametrize("make", [zoo.sequential, zoo.subclassed, zoo.trained, zoo.quantized, words], ids=lambda make: make.__name__)
def test_models(make, tmp_path):
    model = zoo.fill(make())
    before, prediction = zoo.values(model), zoo.predict(model)
    sk.save_model(model, tmp_path / "one.keras")
    sk.save_model(model, tmp_path / "many.keras", "1kB")
    model.save(tmp_path / "keras.keras")
    model.save(tmp_path / "folder", zipped=False)
    assert zipfile.ZipFile(tmp_path / "one.keras").testzip() is None
    loaded = [sk.load_model(tmp_path / name) for name in ("one.keras", "many.keras", "keras.keras", "folder")]
    for again in [*loaded, keras.saving.load_model(tmp_path / "one.keras")]:
        assert zoo.same(zoo.values(again), before) and np.array_equal(zoo.predict(again), prediction)
        assert getattr(again.layers[0], "text", None) == getattr(model.layers[0], "text", None)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_plain_keras_reads_the_weights_beside(tmp_path):
    model = zoo.fill(zoo.sequential())
    before = zoo.values(model)
    sk.save_model(model, tmp_path / "m.keras", "1kB")
    assert len(list(tmp_path.glob("m_*.weights.h5"))) > 1
    zoo.spoil(model)
    model.load_weights(tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_weights_beside_are_renamed_with_the_model(tmp_path):
    model = zoo.fill(zoo.sequential())
    sk.save_model(model, tmp_path / "m.keras", "1kB")
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name("better" + path.name[1:]))
    assert zoo.same(zoo.values(sk.load_model(tmp_path / "better.keras")), zoo.values(model))


def test_weights_of_another_configuration(tmp_path):
    sk.save_model(zoo.sequential(), tmp_path / "m.keras", 1)
    other = keras.Sequential([keras.Input((6,)), layers.Dense(16), layers.BatchNormalization(), layers.Dense(16, activation="relu"),
                              layers.Dropout(0.3), layers.Dense(3)])
    (tmp_path / "b").mkdir()
    sk.save_model(other, tmp_path / "b" / "m.keras", 1)
    os.replace(tmp_path / "b" / "m.keras", tmp_path / "m.keras")
    with pytest.raises(shardwright.CorruptError, match="another configuration"):
        sk.load_model(tmp_path / "m.keras")
    sk.load_model(tmp_path / "m.keras", weights=tmp_path / "m.weights.json")


def test_weights_that_are_not_there(tmp_path):
    sk.save_model(zoo.sequential(), tmp_path / "m.keras", 1)
    (tmp_path / "m.weights.json").unlink()
    with pytest.raises(shardwright.NotFoundError, match="not beside it"):
        sk.load_model(tmp_path / "m.keras")


def test_compile_and_custom_objects(tmp_path):
    class Unknown(layers.Layer):
        def call(self, x):
            return x
    model = zoo.train(keras.Sequential([keras.Input((6,)), Unknown(), layers.Dense(2)]))
    sk.save_model(model, tmp_path / "m.keras")
    with pytest.raises(TypeError, match="Unknown"):
        sk.load_model(tmp_path / "m.keras")
    loaded = sk.load_model(tmp_path / "m.keras", custom_objects={"Unknown": Unknown}, compile=False)
    assert getattr(loaded, "optimizer", None) is None


def test_lambda_needs_consent(tmp_path):
    model = keras.Sequential([keras.Input((6,)), layers.Lambda(lambda x: x), layers.Dense(2)])
    sk.save_model(model, tmp_path / "m.keras")
    with pytest.raises(ValueError, match="[Ll]ambda"):
        sk.load_model(tmp_path / "m.keras")


@pytest.mark.parametrize("members, error", [
    ({}, "configuration"), ({"config.json": "{}"}, "no weights"), ({"config.json": "{}", "shardwright.json": '{"weights": "../../x.weights.json"}'}, "not beside")])
def test_archives_that_are_none(members, error, tmp_path):
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    with pytest.raises(shardwright.Error, match=error):
        sk.load_model(tmp_path / "m.keras")


def test_file_that_is_no_archive(tmp_path):
    (tmp_path / "m.keras").write_bytes(b"PK nothing")
    with pytest.raises(shardwright.CorruptError):
        sk.load_model(tmp_path / "m.keras")
    with pytest.raises(shardwright.NotFoundError):
        sk.load_model(tmp_path / "absent.keras")


def test_assets_stay_inside(tmp_path):
    model = words()
    model.build((None, 6))
    sk.save_model(model, tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras", "a") as archive:
        archive.writestr("assets/../../outside.txt", "no")
    with pytest.raises(shardwright.CorruptError, match="somewhere else"):
        sk.load_model(tmp_path / "m.keras")
    assert not (tmp_path.parent / "outside.txt").exists()


BROKEN = {"empty": b"", "no text": b"\xff\xfe", "list": b"[]", "null": b"null", "deep": b"[" * 100_000}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_json_that_is_none(text, tmp_path):
    sk.save_model(zoo.sequential(), tmp_path / "m.keras", 1)
    for member in ("config.json", "shardwright.json"):
        with zipfile.ZipFile(tmp_path / "m.keras") as whole, zipfile.ZipFile(tmp_path / "b.keras", "w") as broken:
            for name in whole.namelist():
                broken.writestr(name, text if name == member else whole.read(name))
        with pytest.raises(shardwright.CorruptError, match="JSON"):
            sk.load_model(tmp_path / "b.keras")
    (tmp_path / "m.weights.json").write_bytes(text)
    with pytest.raises(shardwright.CorruptError, match="JSON"):
        sk.load_model(tmp_path / "m.keras")


def test_member_with_a_flipped_bit(tmp_path):
    sk.save_model(zoo.sequential(), tmp_path / "m.keras")
    content = bytearray((tmp_path / "m.keras").read_bytes())
    content[content.index(b'"class_name"') + 2] ^= 1
    (tmp_path / "m.keras").write_bytes(content)
    with pytest.raises(shardwright.CorruptError, match="config.json.*CRC"):
        sk.load_model(tmp_path / "m.keras")


def test_manifest_of_an_archive(tmp_path):
    model = zoo.fill(zoo.sequential())
    sk.save_model(model, tmp_path / "m.keras", manifest=True)
    assert zoo.same(zoo.values(sk.load_model(tmp_path / "m.keras", verify=True)), zoo.values(model))
    sk.save_model(zoo.fill(model, 7), tmp_path / "m.keras")  # hashes of the old one would call it damaged
    assert zoo.same(zoo.values(sk.load_model(tmp_path / "m.keras", verify=True)), zoo.values(model))
    content = bytearray((tmp_path / "m.keras").read_bytes())
    content[content.index(np.asarray(model.layers[0].kernel).tobytes()) + 3] ^= 1
    (tmp_path / "m.keras").write_bytes(content)
    with pytest.raises(shardwright.CorruptError):
        sk.load_model(tmp_path / "m.keras", verify=True)


def test_errors_and_summaries_speak_of_the_model(tmp_path, monkeypatch):
    """Not of the place where it is put together."""
    model, path = zoo.sequential(), tmp_path / "m.keras"
    assert sk.save_model(model, path).target == str(path)
    with pytest.raises(shardwright.ResourceExhaustedError) as caught:
        sk.save_model(model, path, memory=1)
    assert "model-" not in str(caught.value)
    for number, error in ((errno.ENOSPC, shardwright.ResourceExhaustedError), (errno.EROFS, PermissionError), (errno.EIO, shardwright.IoError)):
        def fail(*_, **__):
            raise OSError(number, os.strerror(number), "elsewhere")
        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(error) as caught:
            sk.save_model(model, path)
        assert isinstance(caught.value, shardwright.Error) and caught.value.path == str(path)
    assert os.listdir(tmp_path) == ["m.keras"]
    (tmp_path / "d.keras").mkdir()
    with pytest.raises(shardwright.AlreadyExistsError):
        sk.save_model(model, tmp_path / "d.keras", "100B")
    assert sorted(os.listdir(tmp_path)) == ["d.keras", "m.keras"]


def test_names_and_overwriting(tmp_path):
    model = zoo.sequential()
    with pytest.raises(shardwright.InvalidArgumentError, match=".keras"):
        sk.save_model(model, tmp_path / "m.h5")
    with pytest.raises(shardwright.NotFoundError):
        sk.save_model(model, tmp_path / "absent" / "m.keras")
    sk.save_model(model, tmp_path / "m.keras")
    with pytest.raises(shardwright.AlreadyExistsError):
        sk.save_model(model, tmp_path / "m.keras", overwrite=False)
    assert json.loads(zipfile.ZipFile(tmp_path / "m.keras").read("metadata.json"))["keras_version"] == keras.__version__
