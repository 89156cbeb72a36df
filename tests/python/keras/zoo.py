"""Models of every kind, and what tests do with them. Each function makes a new one, with the same structure every time."""
from __future__ import annotations

import keras
import numpy as np
from keras import layers


def sequential():
    return keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="relu"), layers.BatchNormalization(), layers.Dense(16),
                             layers.Dropout(0.3), layers.Dense(3)])


def functional():
    x = inputs = keras.Input((6,), name="in")
    shared = layers.Dense(6, name="shared")
    x = shared(shared(x))
    x = keras.Sequential([layers.Dense(8), layers.LayerNormalization()], name="inner")(x)
    return keras.Model(inputs, layers.Dense(2, name="head")(x), name="outer")


@keras.saving.register_keras_serializable("zoo")
class Block(layers.Layer):
    """Sublayers as attribute, in a list, in a list of lists, in a dictionary; and variables of its own."""

    def __init__(self, width, **options):
        super().__init__(**options)
        self.width = width
        self.one = layers.Dense(width)
        self.some = [layers.Dense(width), layers.BatchNormalization(), layers.Dense(width)]
        self.nested = [[layers.Dense(width)], [layers.Dense(width)]]
        self.named = {"z": layers.Dense(width), "a": layers.Dense(width)}

    def all(self):
        return [self.one, *self.some, self.nested[0][0], self.nested[1][0], *self.named.values()]

    def build(self, shape):
        self.scale = self.add_weight(shape=(self.width,), name="scale", initializer="ones")
        self.count = self.add_weight(shape=(), name="count", dtype="int32", trainable=False, initializer="zeros")
        for layer in self.all():
            layer.build(shape)
        super().build(shape)

    def call(self, x):
        return self.scale * sum(layer(x) for layer in self.all())

    def get_config(self):
        return {**super().get_config(), "width": self.width}


@keras.saving.register_keras_serializable("zoo")
class Subclassed(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.first, self.second, self.out = Block(6), Block(6), layers.Dense(2)

    def call(self, x):
        return self.out(self.second(self.first(x)))

    def build(self, shape):
        self.first.build(shape)
        self.second.build(shape)
        self.out.build(shape)
        super().build(shape)


def subclassed():
    model = Subclassed()
    model.build((None, 6))
    return model


@keras.saving.register_keras_serializable("zoo")
class Tied(keras.Model):
    """The output layer uses the embedding's own variable."""

    def __init__(self, **options):
        super().__init__(**options)
        self.embedding, self.hidden, self.output_layer = layers.Embedding(10, 6), layers.Dense(6), layers.Embedding(10, 6)

    def build(self, shape):
        self.embedding.build(shape)
        self.hidden.build((None, 6))
        self.output_layer._embeddings = self.embedding._embeddings
        self.output_layer.built = True
        super().build(shape)

    def call(self, x):
        x = self.hidden(keras.ops.mean(self.embedding(keras.ops.cast(x * 3, "int32") % 10), axis=1))
        return keras.ops.matmul(x, keras.ops.transpose(self.output_layer.embeddings))


def tied():
    model = Tied()
    model.build((None, 6))
    return model


def convolutional():
    x = inputs = keras.Input((6,))
    x = layers.Reshape((6, 1))(x)
    x = layers.Conv1D(4, 3, padding="same")(x)
    x = layers.SeparableConv1D(4, 3, padding="same")(x)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 3)(x, x)
    x = layers.GRU(4)(x)
    return keras.Model(inputs, layers.EinsumDense("bi,io->bo", (5,), bias_axes="o")(x))


def quantized():
    x = inputs = keras.Input((6,))
    x = layers.Dense(8)(x)
    x = layers.EinsumDense("bi,io->bo", (8,))(x)
    model = keras.Model(inputs, layers.Dense(4, dtype="float32")(x))
    model.quantize("int8")
    return model


def lora():
    x = inputs = keras.Input((6,))
    first, second = layers.Dense(8), layers.EinsumDense("bi,io->bo", (8,), bias_axes="o")
    model = keras.Model(inputs, layers.Dense(4)(second(first(x))))
    first.enable_lora(2)
    second.enable_lora(2)
    return model


def quantized_lora():
    model = quantized()
    model.layers[1].enable_lora(2)
    return model


def half():
    return keras.Sequential([keras.Input((6,)), layers.Dense(16, dtype="bfloat16"), layers.LayerNormalization(dtype="bfloat16"),
                             layers.Dense(3, dtype="float16")])


def mixed():
    x = inputs = keras.Input((6,))
    x = layers.Dense(8, dtype="mixed_bfloat16")(x)
    return keras.Model(inputs, layers.Dense(3, dtype="mixed_bfloat16")(x))


def trained():
    return train(functional())


MODELS = [sequential, functional, subclassed, tied, convolutional, quantized, lora, quantized_lora, half, mixed, trained]
# Keras writes these twice; so does every byte of it, in its sums.
TIED = (tied,)


# ---- what is done with them

def train(model, steps=2):
    model.compile(optimizer="adam", loss="mse")
    x = np.linspace(-1, 1, 8 * 6, dtype="float32").reshape(8, 6)
    y = np.ones((8, model(x[:1]).shape[-1]), "float32")
    model.fit(x, y, batch_size=8, epochs=steps, verbose=0)
    return model


def variables(model):
    """Every variable that is saved, each once."""
    found = list(model.variables)
    if getattr(model, "optimizer", None) is not None:
        found += model.optimizer.variables
    seen, out = set(), []
    for variable in found:
        if id(variable) not in seen and "seed_generator" not in variable.path and variable.path.split("/")[0] not in ("loss", "metrics"):
            seen.add(id(variable))
            out.append(variable)
    return out


def values(model):
    return [np.array(keras.ops.convert_to_numpy(variable.value)) for variable in variables(model)]


def fill(model, seed=0):
    """Every variable gets random values of its own, so that two in each other's place are seen."""
    rng = np.random.default_rng(seed)
    for variable in variables(model):
        kind = keras.backend.standardize_dtype(variable.dtype)
        if "int" in kind:
            variable.assign(rng.integers(0, 100, variable.shape).astype(kind))
        else:
            variable.assign(rng.standard_normal(variable.shape).astype("float32") * 0.5 + 1)
    return model


def spoil(model):
    """Values that no test saves."""
    for variable in variables(model):
        variable.assign(np.full(variable.shape, 77).astype("int8" if "int8" in str(variable.dtype) else "float32"))
    return model


def predict(model):
    x = np.linspace(-1, 1, 5 * 6, dtype="float32").reshape(5, 6)
    return np.asarray(keras.ops.convert_to_numpy(model(x, training=False))).astype("float32")


def same(a, b):
    """Bit for bit, dtypes too."""
    return len(a) == len(b) and all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b))
