"""Layers that save themselves in their own way, and those of which Keras forgets something."""
import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import zoo
from keras import layers

import shardwright
import shardwright.keras as sk


class Square(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(6, 6), name="kernel")
        super().build(shape)

    def call(self, x):
        return x @ self.kernel


class Transposing(Square):
    """Other keys, other values than its variables, and more than those."""

    scale = 0.0

    def save_own_variables(self, store):
        store["transposed"] = keras.ops.transpose(self.kernel)
        store["deep/er"] = np.arange(3)
        store["scale"] = 2.5

    def load_own_variables(self, store):
        self.kernel.assign(keras.ops.transpose(keras.ops.convert_to_tensor(store["transposed"])))
        assert store["deep/er"].tolist() == [0, 1, 2]
        self.scale = float(store["scale"])


class Writing(Square):
    """Changes what it is given."""

    def load_own_variables(self, store):
        kernel = store["0"]
        kernel[0, 0] = -1
        self.kernel.assign(kernel)


class Picky(Square):
    def load_own_variables(self, store):
        self.kernel.assign(store["0"])
        if float(np.max(store["0"])) > 50:
            raise ValueError("values are too large")


def model_of(*stack):
    return zoo.fill(keras.Sequential([keras.Input((6,)), layers.Dense(6), *stack]))


@pytest.mark.parametrize("name", ["m.weights.json", "m.weights.h5", "m.safetensors"])
def test_any_key(name, tmp_path):
    model = model_of(Transposing())
    before = zoo.values(model)
    sk.save_weights(model, tmp_path / name)
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / name)
    assert zoo.same(zoo.values(model), before) and model.layers[-1].scale == 2.5
    if name.startswith("m.weights"):
        zoo.spoil(model)
        model.load_weights(tmp_path / name)
        assert zoo.same(zoo.values(model), before)


def test_any_key_of_keras(tmp_path):
    model = model_of(Transposing())
    before = zoo.values(model)
    model.save_weights(tmp_path / "m.weights.h5")
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "m.weights.h5")
    assert zoo.same(zoo.values(model), before)


def test_text_in_a_store(tmp_path):
    class Talking(Square):
        def save_own_variables(self, store):
            store["text"] = "hello"
    with pytest.raises(shardwright.UnsupportedError, match="talking/vars/text"):
        sk.save_weights(model_of(Talking()), tmp_path / "m.weights.h5")


def test_values_may_be_written_to(tmp_path):
    model = model_of(Writing())
    sk.save_weights(model, tmp_path / "m.weights.h5")
    before = zoo.values(model)
    sk.load_weights(model, tmp_path / "m.weights.h5")
    after = zoo.values(model)
    assert after[-1][0, 0] == -1 and np.array_equal(after[-1].ravel()[1:], before[-1].ravel()[1:]) and zoo.same(after[:-1], before[:-1])
    sk.load_weights(model, tmp_path / "m.weights.h5")


def test_layer_that_refuses_is_asked_first(tmp_path):
    """It stands last, and has assigned its variable already when it raises: all the same nothing is changed."""
    model = model_of(Picky())
    zoo.spoil(model)
    sk.save_weights(model, tmp_path / "m.weights.h5")
    zoo.fill(model, 9)
    before = zoo.values(model)
    with pytest.raises(sk.MismatchError, match="values are too large"):
        sk.load_weights(model, tmp_path / "m.weights.h5")
    assert zoo.same(zoo.values(model), before)


def test_shape_that_only_the_layer_knows(tmp_path):
    model = model_of(Transposing())
    shardwright.save(tmp_path / "m.safetensors", {
        "layers/dense/vars/0": np.zeros((6, 6), "f4"), "layers/dense/vars/1": np.zeros(6, "f4"), "layers/transposing/vars/transposed": np.zeros((7, 6), "f4"),
        "layers/transposing/vars/deep/er": np.arange(3), "layers/transposing/vars/scale": np.float32(1)})
    before = zoo.values(model)
    with pytest.raises(sk.MismatchError, match="Transposing.load_own_variables"):
        sk.load_weights(model, tmp_path / "m.safetensors")
    assert zoo.same(zoo.values(model), before)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8(dtype, tmp_path):
    """Keras writes it without saying which it is, and cannot read it; in shards it cannot even write it."""
    class Eight(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(4, 4), dtype=dtype, initializer="zeros", trainable=False)
            super().build(shape)

        def call(self, x):
            return x
    model = keras.Sequential([keras.Input((6,)), Eight()])
    values = np.arange(16).reshape(4, 4).astype(getattr(ml_dtypes, dtype))
    model.layers[0].kernel.assign(keras.ops.cast(values.astype("float32"), dtype))
    for name in ("m.weights.json", "m.weights.h5", "m.safetensors", "keras.weights.h5"):
        if name.startswith("keras"):
            with h5py.File(tmp_path / name, "w") as file:
                file["layers/eight/vars/0"] = values.view("V1")
        else:
            sk.save_weights(model, tmp_path / name)
        model.layers[0].kernel.assign(keras.ops.cast(np.zeros((4, 4), "float32"), dtype))
        sk.load_weights(model, tmp_path / name)
        assert np.array_equal(keras.ops.convert_to_numpy(keras.ops.cast(model.layers[0].kernel, "float32")), values.astype("float32")), name


def test_two_names_for_one_layer(tmp_path):
    """The file knows a layer under the name that the newer class gives it second."""
    class Old(keras.Model):
        def __init__(self):
            super().__init__()
            self.body = layers.Dense(6)

        def build(self, shape):
            self.body.build(shape)
            super().build(shape)

        def call(self, x):
            return self.body(x)

    class New(Old):
        def __init__(self):
            super().__init__()
            self.alias = self.body
    old, new = Old(), New()
    old.build((None, 6))
    new.build((None, 6))
    before = zoo.values(zoo.fill(old))
    old.save_weights(tmp_path / "m.weights.h5")
    sk.load_weights(new, tmp_path / "m.weights.h5")
    assert zoo.same(zoo.values(new), before)


def test_attribute_that_leads_back(tmp_path):
    """Keras 3.15 follows it in circles when it loads."""
    model = zoo.fill(zoo.functional())
    model.layers[-1].__dict__["parent"] = model
    before = zoo.values(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "300B")
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_layers_in_lists_of_lists_of_an_old_file(tmp_path):
    """Versions before 3.15 left them out: the file still loads, with a warning that says which keep their values."""
    model = zoo.fill(zoo.subclassed())
    model.save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5", "a") as file:
        for block in ("first", "layers/block_1"):
            del file[f"{block}/nested"]
    zoo.spoil(model)
    with pytest.warns(UserWarning, match="first/nested/container/dense"):
        loaded = sk.load_weights(model, tmp_path / "m.weights.h5")
    assert len(loaded.skipped) == 4
    assert (keras.ops.convert_to_numpy(model.first.nested[0][0].kernel) == 77).all()
    assert not (keras.ops.convert_to_numpy(model.first.some[0].kernel) == 77).any()


def test_names_of_keras_2_13(tmp_path):
    model = zoo.fill(zoo.functional())
    before = zoo.values(model)
    model.save_weights(tmp_path / "new.weights.h5")
    with h5py.File(tmp_path / "new.weights.h5") as new, h5py.File(tmp_path / "m.weights.h5", "w") as old:
        def copy(name, node):
            if isinstance(node, h5py.Dataset):
                old[name.replace("layers", "_layer_checkpoint_dependencies")] = node[()]
        new.visititems(copy)
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "m.weights.h5")
    assert zoo.same(zoo.values(model), before)


# ---- seeds

def dropout_model():
    return keras.Sequential([keras.Input((6,)), layers.Dense(6), layers.Dropout(0.5)])


def seed_of(model):
    return keras.ops.convert_to_numpy(model.layers[-1].seed_generator.state.value).tolist()


def test_seeds_are_left_out_as_in_keras(tmp_path):
    model = zoo.fill(dropout_model())
    sk.save_weights(model, tmp_path / "m.weights.h5")
    assert not any("seed" in name for name in shardwright.open(tmp_path / "m.weights.h5"))
    before = seed_of(model)
    sk.load_weights(model, tmp_path / "m.weights.h5")
    assert seed_of(model) == before


@pytest.mark.parametrize("name", ["m.weights.json", "m.weights.h5"])
def test_seeds_on_request(name, tmp_path):
    """Dropout goes on where it was; Keras reads the file and passes over them."""
    model = zoo.fill(dropout_model())
    state = model.layers[-1].seed_generator.state
    state.assign(np.array([12, 34], "uint32"))
    sk.save_weights(model, tmp_path / name, random_state=True)
    state.assign(np.array([1, 2], "uint32"))
    model.load_weights(tmp_path / name)
    assert seed_of(model) == [1, 2]
    sk.load_weights(model, tmp_path / name)
    assert seed_of(model) == [12, 34]


def test_seeds_of_a_layer_that_has_none(tmp_path):
    model = zoo.fill(dropout_model())
    sk.save_weights(model, tmp_path / "m.weights.h5", random_state=True)
    plain = keras.Sequential([keras.Input((6,)), layers.Dense(6)])
    assert sk.load_weights(plain, tmp_path / "m.weights.h5").skipped == []


# ---- optimizers

def compiled(make=zoo.functional, optimizer="adam"):
    model = make()
    model.compile(optimizer=optimizer, loss="mse")
    return model


def test_slots_of_an_optimizer_that_made_no_step(tmp_path):
    """Keras warns that the numbers differ, and leaves all of them out."""
    model = zoo.fill(zoo.trained())
    before = zoo.values(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "300B")
    fresh = compiled()
    assert not fresh.optimizer.built or len(fresh.optimizer.variables) > 2
    sk.load_weights(fresh, tmp_path / "m.weights.json", optimizer=True)
    assert zoo.same(zoo.values(fresh), before)


def test_file_without_optimizer(tmp_path):
    plain = zoo.fill(zoo.functional())
    sk.save_weights(plain, tmp_path / "m.weights.h5")
    model = zoo.fill(zoo.trained(), 3)
    slots = [np.array(keras.ops.convert_to_numpy(v.value)) for v in model.optimizer.variables]
    with pytest.raises(sk.MismatchError, match="optimizer/vars/0"):
        sk.load_weights(model, tmp_path / "m.weights.h5", optimizer=True)
    with pytest.warns(UserWarning, match="no weights of an optimizer"):
        sk.load_weights(model, tmp_path / "m.weights.h5")
    assert zoo.same([np.array(keras.ops.convert_to_numpy(v.value)) for v in model.optimizer.variables], slots)
    assert zoo.same(zoo.values(model)[:len(plain.variables)], zoo.values(plain))


def test_model_without_optimizer(tmp_path, recwarn):
    sk.save_weights(zoo.fill(zoo.trained()), tmp_path / "m.weights.h5")
    model = zoo.functional()
    assert sk.load_weights(model, tmp_path / "m.weights.h5").skipped == []
    assert not [w for w in recwarn if "optimizer" in str(w.message)]
    with pytest.raises(sk.MismatchError, match="optimizer/vars/2"):
        sk.load_weights(model, tmp_path / "m.weights.h5", optimizer=True)


def test_another_optimizer(tmp_path):
    """Keras: a warning, and training goes on from nothing."""
    sk.save_weights(zoo.fill(zoo.trained()), tmp_path / "m.weights.h5")
    model = compiled(optimizer=keras.optimizers.SGD(momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    before = zoo.values(zoo.fill(model, 4))
    with pytest.raises(sk.MismatchError, match="optimizer/vars"):
        sk.load_weights(model, tmp_path / "m.weights.h5")
    assert zoo.same(zoo.values(model), before)
    sk.load_weights(model, tmp_path / "m.weights.h5", optimizer=False)


def test_training_goes_on_as_if_nothing_had_been(tmp_path):
    model = zoo.train(zoo.functional(), 2)
    sk.save_weights(model, tmp_path / "m.weights.json", "300B")
    data = np.linspace(-1, 1, 48, dtype="f4").reshape(8, 6), np.ones((8, 2), "f4")
    again = compiled()
    sk.load_weights(again, tmp_path / "m.weights.json")
    for one in (model, again):
        one.fit(*data, batch_size=8, epochs=2, verbose=0)
    assert all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in zip(zoo.values(model), zoo.values(again)))


def test_gradients_that_are_accumulated(tmp_path):
    def make():
        return compiled(optimizer=keras.optimizers.Adam(gradient_accumulation_steps=2))
    model = make()
    model.fit(np.ones((8, 6)), np.ones((8, 2)), verbose=0)
    before = zoo.values(zoo.fill(model))
    sk.save_weights(model, tmp_path / "m.weights.json")
    for again in (zoo.spoil(model), make()):
        sk.load_weights(again, tmp_path / "m.weights.json")
        assert zoo.same(zoo.values(again), before)


def test_loss_scale_optimizer(tmp_path):
    model = compiled(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()))
    model.optimizer.build(model.trainable_variables)
    before = zoo.values(zoo.fill(model))
    sk.save_weights(model, tmp_path / "m.weights.h5")
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "m.weights.h5")
    assert zoo.same(zoo.values(model), before)


# ---- what is read

def test_no_byte_that_was_not_asked_for(tmp_path):
    """Two layers of a large set, by hand, in turns over many shards."""
    model = keras.Sequential([keras.Input((256,)), *[layers.Dense(256) for _ in range(12)]])
    zoo.fill(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "300kB")
    with shardwright.open(tmp_path / "m.weights.json") as checkpoint:
        assert len(checkpoint.files) == 12
        begun = checkpoint.bytes_read
        for i in (11, 0, 11, 5, 0):
            name = f"layers/dense_{i}/vars/0" if i else "layers/dense/vars/0"
            assert np.array_equal(checkpoint[name][3:5], keras.ops.convert_to_numpy(model.layers[i].kernel)[3:5])
        assert checkpoint.bytes_read - begun <= 5 * 2 * 256 * 4


def test_every_byte_once(tmp_path):
    model = keras.Sequential([keras.Input((512,)), *[layers.Dense(512) for _ in range(6)]])
    zoo.fill(model)
    sk.save_weights(model, tmp_path / "m.weights.json", "3MB")
    payload = sum(array.nbytes for array in zoo.values(model))
    loaded = sk.load_weights(model, tmp_path / "m.weights.json", memory="16MiB")
    assert payload <= loaded.bytes_read < payload + 400_000  # the metadata of the files


# ---- Keras 2

@pytest.mark.parametrize("how", ["save", "save_weights"])
@pytest.mark.parametrize("make", [zoo.sequential, zoo.functional, zoo.convolutional], ids=lambda make: make.__name__)
def test_h5_files_of_keras_2(make, how, tmp_path):
    model = zoo.fill(make())
    before = zoo.values(model)
    if how == "save":
        model.compile("adam", "mse")
        model.save(tmp_path / "m.h5")
    else:
        from keras.src.legacy.saving import legacy_h5_format
        with h5py.File(tmp_path / "m.h5", "w") as file:
            legacy_h5_format.save_weights_to_hdf5_group(file, model)
    again = zoo.spoil(make())
    with h5py.File(tmp_path / "m.h5") as file:
        assert "layer_names" in (file if how == "save_weights" else file["model_weights"]).attrs
    sk.load_weights(again, tmp_path / "m.h5")
    assert zoo.same(zoo.values(again), before)
