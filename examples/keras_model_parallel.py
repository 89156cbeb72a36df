"""A Keras model over eight devices: saved from one device, loaded by the layout map, each variable's shards to their devices.

    python examples/keras_model_parallel.py [FOLDER]

Runs on the CPU, which plays eight devices. `shardwright map --layout FILE` shows what a map does before there is a model.
"""
import os
import sys
import tempfile

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import keras
import numpy as np
from keras import distribution, layers

import shardwright.keras as sk

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
path = os.path.join(folder, "model.weights.json")


def make():
    tokens = keras.Input((16,), dtype="int32")
    x = layers.Embedding(1000, 64, name="embedding")(tokens)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dense(256, activation="relu", name="up")(x)
    model = keras.Model(tokens, layers.Dense(64, name="down")(x))
    model.compile("adam", "mse")
    return model


# Trained on one device, saved in shards.
tokens = np.random.default_rng(0).integers(0, 1000, (32, 16))
one = make()
one.fit(tokens, np.ones((32, 64), "float32"), verbose=0)
sk.save_weights(one, path, max_shard_size="100kB")
expected = one.predict(tokens, verbose=0)

mesh = distribution.DeviceMesh((2, 4), ("batch", "model"))
layout = distribution.LayoutMap(mesh)
layout["embedding/embeddings"] = ("model", None)
layout["up/kernel"] = (None, "model")
layout["up/bias"] = ("model",)
layout["down/kernel"] = ("model", None)
with distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope():
    model = make()
    loaded = sk.load_weights(model, path)
    print(f"loaded {loaded.weights} weights, slots of the optimizer among them, {loaded.bytes_read} bytes read")
    for variable in model.trainable_variables:
        shard = variable.value.addressable_shards[0].data.shape
        print(f"{variable.path:22} {str(tuple(variable.shape)):12} {shard} on each device")
    difference = np.abs(expected - model.predict(tokens, verbose=0)).max()
    assert difference < 1e-5, difference
    print(f"largest difference of the outputs: {difference:.1e}")
    model.fit(tokens, np.ones((32, 64), "float32"), verbose=0)
print("trained on")
