#!/usr/bin/env python3
"""Makes tests/data/keras_split.json: how Keras itself cuts variables into shards, and the index it writes.

Each case: limit in bytes, variables in save order [group, key, dtype, shape], and the index file's text, made by Keras's own store.
"""
import json
import os
import pathlib
import random
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from keras.src.saving.saving_lib import ShardedH5IOStore  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "keras_split.json"
BITS = {"float16": 16, "float32": 32, "float64": 64, "bfloat16": 16, "int8": 8, "int16": 16, "int32": 32, "int64": 64,
        "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}


def numpy_type(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def save(limit, variables, file_name):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / file_name
        store = ShardedH5IOStore(path, max_shard_size=limit / 1024**3, mode="w")
        open_group = None
        for group, key, dtype, shape in variables:
            if group != open_group:
                parent = group.removesuffix("vars").removesuffix("/")
                store.make(parent, metadata=None)
                open_group = group
            store[key] = np.zeros(shape, numpy_type(dtype))
        store.close()
        shards = sorted(p.name for p in pathlib.Path(directory).glob("*.h5"))
        return {"file": file_name, "limit": limit, "variables": variables, "shards": shards, "index": path.read_text()}


def random_case(rng):
    variables = []
    for layer in range(rng.randint(1, 12)):
        for key in range(rng.randint(1, 5)):
            dtype = rng.choice(list(BITS))
            shape = [rng.randint(1, 12) for _ in range(rng.randint(0, 3))]
            variables.append([f"layers/layer_{layer}/vars", str(key), dtype, shape])
    largest = max(int(np.prod(v[3], dtype=int)) * BITS[v[2]] / 8 for v in variables)
    return save(max(1, int(largest)) * rng.choice([1, 2, 3]) + rng.randint(1, 40), variables, "m.weights.json")


def main():
    rng = random.Random(20260820)
    f4 = "float32"
    cases = [
        save(1040, [["layers/dense/vars", "0", f4, [8, 16]], ["layers/dense/vars", "1", f4, [16]], ["layers/dense_1/vars", "0", f4, [16, 16]],
                    ["layers/dense_1/vars", "1", f4, [16]]], "simple.weights.json"),
        save(100, [["vars", "0", f4, [25]], ["layers/a/vars", "0", f4, [25]], ["layers/b/vars", "0", "bool", [1]]], "exact_fit.weights.json"),
        save(8, [["layers/a/vars", "0", "bool", [64]], ["layers/b/vars", "0", "bool", [1]], ["layers/c/vars", "0", "bool", [3]]], "bits.weights.json"),
        save(16, [["layers/a/vars", "0", f4, [4]], ["layers/b/vars", "0", f4, [0]], ["layers/c/vars", "0", f4, []], ["layers/d/vars", "0", f4, [3]]],
             "zero_size.weights.json"),
        save(50, [["optimizer/vars", str(i), f4, [5]] for i in range(12)], "spanning.weights.json"),
        save(1000, [], "empty.weights.json"),
        save(1000, [["layers/a/vars", "0", f4, [4]]], "zweights.json"),
        save(1000, [["layers/größe/vars", "0", f4, [4]]], "a.weights.b.weights.json"),
    ]
    cases += [random_case(rng) for _ in range(40)]
    OUT.write_text(json.dumps(cases, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
