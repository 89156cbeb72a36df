"""A Keras model that is trained for some epochs, saved as it goes, and goes on where it was stopped.

    python keras_training.py runs/keras 20      # stop it with Ctrl-C, and start it again

Needs keras, with jax or torch, and shardwright.
"""
import sys

import keras
import numpy as np

import shardwright.keras


def make() -> keras.Model:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64, "tanh", name="hidden"), keras.layers.Dropout(0.1, name="dropout"),
                              keras.layers.Dense(1, name="out")], name="sines")
    model.compile("adam", "mse")
    return model


def main(directory: str, epochs: int) -> None:
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).standard_normal((512, 8)).astype("float32")
    y = np.sin(x.sum(axis=1, keepdims=True))
    model = make()
    checkpoints = shardwright.keras.CheckpointCallback(directory, monitor="val_loss", max_to_keep=3)
    first = checkpoints.resume(model)
    if first:
        print(f"goes on after step {checkpoints.restored.step}, loss {checkpoints.restored.metrics['val_loss']:.4f}")
    history = model.fit(x, y, batch_size=64, epochs=epochs, initial_epoch=first, shuffle=False, validation_split=0.2, verbose=0, callbacks=[checkpoints])
    print(f"loss {history.history['val_loss'][-1]:.4f}" if first < epochs else "was done already")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/keras", int(sys.argv[2]) if len(sys.argv) > 2 else 20)
