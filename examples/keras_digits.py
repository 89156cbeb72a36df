"""Trains a small model on the digits of scikit-learn, saves it in shards, stops, loads it into a new model and goes on.

    python examples/keras_digits.py [directory]
"""
import os
import sys
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import sklearn.datasets

import shardwright
import shardwright.keras as sk


def make_model() -> keras.Model:
    model = keras.Sequential([
        keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dropout(0.2), keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10, activation="softmax")])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main(directory: str) -> None:
    digits = sklearn.datasets.load_digits()
    images, labels = digits.data.astype("float32") / 16, digits.target
    path = os.path.join(directory, "digits.weights.json")

    model = make_model()
    model.fit(images, labels, epochs=2, batch_size=64, verbose=0)
    loss, accuracy = model.evaluate(images, labels, verbose=0)
    print(f"trained 2 epochs: loss {loss:.4f}, accuracy {accuracy:.3f}")
    summary = sk.save_weights(model, path, max_shard_size="200kB", manifest=True, random_state=True)
    for name, nbytes in summary.files:
        print(f"  {name}" if nbytes is None else f"  {name} {nbytes}")

    again = make_model()
    loaded = sk.load_weights(again, path, verify=True)
    print(f"loaded {loaded.weights} weights into a new model: loss {again.evaluate(images, labels, verbose=0)[0]:.4f}")
    again.fit(images, labels, epochs=2, batch_size=64, verbose=0)
    loss, accuracy = again.evaluate(images, labels, verbose=0)
    print(f"trained 2 more: loss {loss:.4f}, accuracy {accuracy:.3f}")

    with shardwright.open(path) as checkpoint:
        print(f"the kernel of the last layer, its first row alone: {checkpoint['layers/dense_2/vars/0'][0, :3]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as made:
            main(made)
