"""What does not fit: all of it is named, and nothing is changed."""
import json

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import zoo
from keras import layers

import shardwright
import shardwright.keras as sk


def dense(*widths, names=None, **options):
    stack = [layers.Dense(width, name=names and names[i], **options) for i, width in enumerate(widths)]
    return zoo.fill(keras.Sequential([keras.Input((6,)), *stack]), 3)


def refused(model, path, **options):
    before = zoo.values(model)
    with pytest.raises(sk.MismatchError) as caught:
        sk.load_weights(model, path, **options)
    assert zoo.same(zoo.values(model), before), "a variable was changed"
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, shardwright.Error)
    return caught.value


@pytest.fixture(params=["m.weights.json", "m.weights.h5", "m.safetensors"])
def saved(request, tmp_path):
    def save(model):
        sk.save_weights(model, tmp_path / request.param)
        return tmp_path / request.param
    return save


def test_shapes(saved):
    path = saved(dense(4, 5, 6))
    error = refused(dense(4, 7, 6), path)
    assert error.problems == [
        "'layers/dense_1/vars/0' (dense_4/kernel): [4, 5] in the file, [4, 7] in the model",
        "'layers/dense_1/vars/1' (dense_4/bias): [5] in the file, [7] in the model",
        "'layers/dense_2/vars/0' (dense_5/kernel): [5, 6] in the file, [7, 6] in the model"] or len(error.problems) == 3
    assert "nothing was changed" in str(error) and "[4, 5] in the file, [4, 7] in the model" in str(error)


def test_last_layer_does_not_fit(saved):
    """Keras has loaded all the others by then."""
    refused(dense(4, 4, 4, 5), saved(dense(4, 4, 4, 3)))


def test_same_number_of_values_is_not_the_same_shape(saved):
    path = saved(keras.Sequential([keras.Input((6,)), layers.Dense(4, use_bias=False)]))
    refused(keras.Sequential([keras.Input((4,)), layers.Dense(6, use_bias=False)]), path)


def test_fewer_layers_in_the_model(saved):
    """Keras says nothing."""
    error = refused(dense(4, 4), saved(dense(4, 4, 4)))
    assert [line for line in error.problems if "'layers/dense_2/vars/0': in the file, not in the model" in line]


def test_more_layers_in_the_model(saved):
    error = refused(dense(4, 4, 4), saved(dense(4, 4)))
    assert any("'layers/dense_2/vars/0'" in line and "not in the file" in line for line in error.problems)


def test_near_names(tmp_path):
    model = zoo.fill(zoo.functional())
    arrays = {row.name: keras.ops.convert_to_numpy(row.variable.value) for row in sk.weights_of(model)}
    arrays["layers/dense_1/wars/0"] = arrays.pop("layers/dense_1/vars/0")
    shardwright.save(tmp_path / "m.safetensors", arrays)
    error = refused(model, tmp_path / "m.safetensors")
    assert error.problems[0].startswith("'layers/dense_1/vars/0' (head/kernel, float32 [8, 2]): not in the file")
    assert "near: 'layers/dense_1/wars/0'" in error.problems[0]
    assert "near: 'layers/dense_1/vars/0'" in error.problems[1]


def test_another_number_of_variables(saved):
    path = saved(dense(4, 4))
    model = zoo.fill(keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.Dense(4, use_bias=False)]))
    assert "'layers/dense_1/vars/1': in the file, not in the model" in refused(model, path).problems[0]


def test_layer_that_was_never_built(saved):
    path = saved(zoo.fill(zoo.subclassed()))
    model = zoo.Subclassed()
    model.first.build((None, 6))
    model.second.build((None, 6))
    model.built = True
    assert any("at 'layers/dense' was never built" in line for line in refused(model, path).problems)


@pytest.mark.parametrize("stored, wanted", [("int32", "float32"), ("float32", "int32"), ("bool", "float32"), ("int64", "bool")])
def test_kinds_of_values(stored, wanted, tmp_path):
    class One(layers.Layer):
        def build(self, shape):
            self.value_ = self.add_weight(shape=(3,), dtype=wanted, initializer="zeros", trainable=False)
            super().build(shape)

        def call(self, x):
            return x
    model = keras.Sequential([keras.Input((6,)), One()])
    shardwright.save(tmp_path / "m.safetensors", {"layers/one/vars/0": np.array([0, 1, 1]).astype(stored)})
    assert f"{stored} in the file, {wanted} in the model" in refused(model, tmp_path / "m.safetensors").problems[0]


def test_integers_of_another_width(tmp_path):
    class One(layers.Layer):
        def build(self, shape):
            self.value_ = self.add_weight(shape=(2,), dtype="int32", initializer="zeros", trainable=False)
            super().build(shape)

        def call(self, x):
            return x
    model = keras.Sequential([keras.Input((6,)), One()])
    shardwright.save(tmp_path / "fits.safetensors", {"layers/one/vars/0": np.array([-5, 2**31 - 1])})
    sk.load_weights(model, tmp_path / "fits.safetensors")
    assert keras.ops.convert_to_numpy(model.layers[0].value_).tolist() == [-5, 2**31 - 1]
    shardwright.save(tmp_path / "large.safetensors", {"layers/one/vars/0": np.array([5, 2**31])})
    assert "cannot hold" in refused(model, tmp_path / "large.safetensors").problems[0]


@pytest.mark.parametrize("stored, wanted, warns", [("float32", "bfloat16", True), ("bfloat16", "float32", False), ("float16", "bfloat16", True),
                                                   ("float16", "float32", False), ("float64", "float32", True)])
def test_floating_types_are_converted(stored, wanted, warns, tmp_path, recwarn):
    values = np.array([[1.0, -2.5, 1 / 3]]).astype(ml_dtypes.bfloat16 if stored == "bfloat16" else stored)
    model = keras.Sequential([keras.Input((1,)), layers.Dense(3, use_bias=False, dtype=wanted)])
    shardwright.save(tmp_path / "m.safetensors", {"layers/dense/vars/0": values})
    sk.load_weights(model, tmp_path / "m.safetensors")
    kernel = keras.ops.convert_to_numpy(keras.ops.cast(model.layers[0].kernel, "float32"))
    expected = values.astype("float32") if wanted == "float32" else values.astype(ml_dtypes.bfloat16).astype("float32")
    assert np.array_equal(kernel, expected)
    assert any("lose precision" in str(w.message) for w in recwarn) == warns


def test_skip_mismatch(saved):
    path = saved(old := dense(4, 5, 6))
    model = dense(4, 7, 6)
    zoo.spoil(model)
    with pytest.warns(UserWarning, match="layers/dense_1/vars/0"):
        loaded = sk.load_weights(model, path, skip_mismatch=True)
    assert loaded.weights == 2 and len(loaded.skipped) == 3
    assert zoo.same(zoo.values(model)[:2], zoo.values(old)[:2])
    # The bias of the last layer fits, its kernel does not: the layer stays whole.
    assert all((array == 77).all() for array in zoo.values(model)[2:])


def test_skip_mismatch_where_the_model_has_more(saved):
    path = saved(old := dense(4, 5))
    model = zoo.spoil(dense(4, 5, 5))
    with pytest.warns(UserWarning, match="layers/dense_2/vars/0"):
        loaded = sk.load_weights(model, path, skip_mismatch=True)
    assert loaded.weights == 4 and zoo.same(zoo.values(model)[:4], zoo.values(old))
    assert all((array == 77).all() for array in zoo.values(model)[4:])


def test_missing_shard(tmp_path):
    model = dense(4, 4, 4, 4)
    sk.save_weights(model, tmp_path / "m.weights.json", "120B")
    shards = sorted(tmp_path.glob("*.h5"))
    for shard in (shards[0], shards[-1]):
        content = shard.read_bytes()
        shard.unlink()
        before = zoo.values(model)
        with pytest.raises(shardwright.NotFoundError, match=shard.name):
            sk.load_weights(model, tmp_path / "m.weights.json")
        assert zoo.same(zoo.values(model), before)
        shard.write_bytes(content)


@pytest.mark.parametrize("damage", [lambda text: "", lambda text: text[:-9], lambda text: "{}", lambda text: '{"weight_map": []}',
                                    lambda text: text.replace("m_00001", "../m_00001"), lambda text: text.replace('"m_00001.weights.h5"', "7")],
                         ids=["empty", "cut", "no map", "list", "path", "number"])
def test_damaged_index(damage, tmp_path):
    model = dense(4, 4, 4)
    sk.save_weights(model, tmp_path / "m.weights.json", "120B")
    text = (tmp_path / "m.weights.json").read_text()
    (tmp_path / "m.weights.json").write_text(damage(text))
    before = zoo.values(model)
    with pytest.raises(shardwright.CorruptError):
        sk.load_weights(model, tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_layer_that_the_index_does_not_name(tmp_path):
    model = dense(4, 4, 4)
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=120 / 2**30)
    index = json.loads((tmp_path / "m.weights.json").read_text())
    del index["weight_map"]["/layers/dense_1/vars"]
    (tmp_path / "m.weights.json").write_text(json.dumps(index))
    before = zoo.values(model)
    with pytest.raises(shardwright.Error):
        sk.load_weights(model, tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_truncated_shard(tmp_path):
    model = dense(40, 40)
    sk.save_weights(model, tmp_path / "m.weights.json", "8kB")
    last = sorted(tmp_path.glob("*.h5"))[-1]
    last.write_bytes(last.read_bytes()[:-500])
    before = zoo.values(model)
    with pytest.raises(shardwright.CorruptError) as caught:
        sk.load_weights(model, tmp_path / "m.weights.json")
    assert str(caught.value.path).endswith(last.name) and zoo.same(zoo.values(model), before)


def test_flipped_bit(tmp_path):
    """Neither HDF5 nor Keras sees it; the manifest does, before anything is changed."""
    model = dense(40, 40)
    sk.save_weights(model, tmp_path / "m.weights.json", "8kB", manifest=True)
    sk.load_weights(model, tmp_path / "m.weights.json", verify=True)
    with shardwright.open(tmp_path / "m.weights.json") as checkpoint:
        needle = np.asarray(checkpoint["layers/dense_1/vars/0"]).tobytes()[:64]
    shard = next(path for path in tmp_path.glob("*.h5") if needle in path.read_bytes())
    content = bytearray(shard.read_bytes())
    content[content.index(needle) + 3] ^= 1
    shard.write_bytes(bytes(content))
    before = zoo.values(zoo.spoil(model))
    with pytest.raises(shardwright.CorruptError):
        sk.load_weights(model, tmp_path / "m.weights.json", verify=True)
    assert zoo.same(zoo.values(model), before)


def test_nothing_to_verify_by(tmp_path):
    """To ask for hashes where there are none is no check that was passed."""
    model = dense(4, 4)
    sk.save_weights(model, tmp_path / "m.weights.json", "50B", manifest=True)
    before = zoo.values(zoo.spoil(model))
    shards = sorted(tmp_path.glob("*.h5"))
    for paths in (shards, iter(shards)):  # the manifest is of the set
        with pytest.raises(shardwright.NotFoundError, match="no content hashes"):
            sk.load_weights(model, paths, verify=True)
    (tmp_path / "shardwright.manifest.json").unlink()
    with pytest.raises(shardwright.NotFoundError, match="no content hashes"):
        sk.load_weights(model, tmp_path / "m.weights.json", verify=True)
    assert zoo.same(zoo.values(model), before)
    shardwright.hash(tmp_path / "m.weights.json", write=True)
    sk.load_weights(model, tmp_path / "m.weights.json", verify=True)


def test_name_that_is_not_text(tmp_path):
    model = dense(4, 4)
    model.save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5", "a") as file:
        file["layers/dense/vars"].create_dataset(b"\xff", data=np.zeros(3))
    with pytest.raises(sk.MismatchError, match="in the file, not in the model"):
        sk.load_weights(model, tmp_path / "m.weights.h5")


@pytest.mark.parametrize("kind", ["soft", "external", "dataset for a group", "group for a dataset"])
def test_what_no_weights_file_has(kind, tmp_path):
    model = dense(4, 4)
    path = tmp_path / "m.weights.h5"
    model.save_weights(path)
    with h5py.File(path, "a") as file:
        del file["layers/dense_1/vars/0"]
        if kind == "soft":
            file["layers/dense_1/vars/0"] = h5py.SoftLink("/layers/dense/vars/0")
        elif kind == "external":
            file["layers/dense_1/vars/0"] = h5py.ExternalLink("other.h5", "/x")
        elif kind == "group for a dataset":
            file.create_group("layers/dense_1/vars/0")
        else:
            del file["layers/dense_1/vars"]
            file["layers/dense_1/vars"] = np.zeros(3)
    before = zoo.values(model)
    with pytest.raises(shardwright.Error):
        sk.load_weights(model, path)
    assert zoo.same(zoo.values(model), before)


@pytest.mark.parametrize("changed", ["index and shards", "index alone"])
def test_renamed_set(changed, tmp_path):
    """Keras opens neither: the index holds the old names, and the first shard is looked for under the new one."""
    model = dense(4, 4, 4)
    before = zoo.values(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "120B")
    for path in list(tmp_path.iterdir()):
        if changed == "index and shards" or path.suffix == ".json":
            path.rename(path.with_name("new" + path.name[1:]))
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "new.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_shapes_that_are_partly_unknown():
    from shardwright.keras.matching import shapes_fit
    assert shapes_fit((3, 4), (None, 4)) and shapes_fit((), ()) and shapes_fit((3, 4), (3, 4))
    assert not shapes_fit((3, 4), (None, 5)) and not shapes_fit((3, 4), (None,)) and not shapes_fit((3,), (3, None))


def test_disk_that_fails_while_values_are_read(tmp_path):
    """All was checked, and yet: the error says that the model is not what it was."""
    model = dense(400, 400)
    sk.save_weights(model, tmp_path / "m.weights.h5")

    class Interrupting:
        def __call__(self, phase, done, total):
            return False
    with pytest.raises(shardwright.AbortedError, match="holds some of the new ones"):
        sk.load_weights(model, tmp_path / "m.weights.h5", progress=Interrupting())
