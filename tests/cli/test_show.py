"""`shardwright show` prints what NumPy prints."""

import json
import random

import ml_dtypes
import numpy as np
import pytest

import inputs

SEED = random.SystemRandom().randrange(1 << 32)


def some_arrays(generator):
    """Values of all magnitudes: those that print as integers, fractions and with exponents, and what is no number."""
    scales = [1, 1e-3, 1e-6, 1e9, 1e30, 0]
    for i in range(40):
        shape = tuple(generator.integers(1, 7, size=generator.integers(0, 4)))
        kind = [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_][i % 7]
        if np.issubdtype(kind, np.floating):
            values = generator.standard_normal(shape) * scales[generator.integers(len(scales))]
            with np.errstate(all="ignore"):
                values = np.asarray(values).astype(kind)
            if values.ndim and generator.integers(3) == 0:
                values.flat[0] = [np.nan, np.inf, -np.inf][generator.integers(3)]
            if generator.integers(3) == 0:
                values = np.round(values)
        else:
            values = np.asarray(generator.integers(0, 2 if kind is np.bool_ else 200, size=shape)).astype(kind)
            if kind is np.int64 and values.ndim:
                values.flat[0] = -(1 << 62) - 1
        yield values
    yield np.arange(3000, dtype=np.float32).reshape(30, 100)
    yield np.arange(1001, dtype=np.int32)
    yield np.arange(4 * 5 * 200, dtype=np.int64).reshape(4, 5, 200)
    yield np.zeros((8, 8, 8, 8), np.float32)
    yield np.linspace(0, 1, 37, dtype=np.float64)
    yield np.zeros((0, 3), np.float32)
    yield np.array([np.nan, 408360160.0000001])
    for kind, values in ((np.float16, (999, 1000, 65504)), (np.float32, (-999999, 1e6, 178923300)), (np.float64, (1e6, 1e16))):
        yield from (np.array(value, kind) for value in values)
        yield from (np.array([value], kind) for value in values)
    yield np.array([80253832, 12345], np.float32)
    yield np.array([1e-10, 1.0], np.float32)
    yield np.ones((2, 1), np.bool_)
    yield np.array(True)
    yield np.array([[0.1, 100000.0], [-0.5, 3.0]], np.float32)


def test_as_numpy_prints(run, checkpoints):
    print("seed", SEED)
    arrays = {f"a{i}": array for i, array in enumerate(some_arrays(np.random.default_rng(SEED)))}
    inputs.write_safetensors(checkpoints / "arrays.safetensors", arrays)
    for name, array in arrays.items():
        got = run(f"shardwright show -q arrays.safetensors {name}").stdout
        expected = str(array) if array.ndim or array.dtype.kind != "f" else str(array[()])
        assert got == expected + "\n", (name, array.dtype, array.shape)


@pytest.mark.parametrize("text", [":", "1", "-1", "0:2", "::2", "::-1", "1:-1, 2", "..., 0", "0, ...", "1, 2, 3", ":, ::3, -2:", "5:2", "-100:100",
                                  "3:0:-2", "2, :, 1"])
def test_slices_as_numpy_takes_them(run, checkpoints, text):
    array = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
    inputs.write_safetensors(checkpoints / "cube.safetensors", {"cube": array})
    expected = eval(f"array[{text}]")  # the texts above are ours
    shown = json.loads(run(f"shardwright show --json cube.safetensors cube --slice '{text}'").stdout)
    assert shown["shape"] == list(expected.shape)
    assert shown["values"] == (expected.tolist() if expected.size else [])
    assert run(f"shardwright show -q cube.safetensors cube --slice '{text}'").stdout == str(expected) + "\n"


@pytest.mark.parametrize("text", ["4", "-5", "x", "::0", "1:2:3:4", "0,0,0,0", ",", "1..2"])
def test_bad_slices(run, checkpoints, text):
    inputs.write_safetensors(checkpoints / "cube.safetensors", {"cube": np.zeros((4, 5, 6), np.float32)})
    done = run(f"shardwright show cube.safetensors cube --slice '{text}'")
    assert (done.returncode, done.stdout) == (2, "")


def test_large_json_is_complete(run, checkpoints):
    array = np.arange(3 * 70000, dtype=np.int32).reshape(3, 70000)
    inputs.write_safetensors(checkpoints / "large.safetensors", {"large": array})
    assert json.loads(run("shardwright show --json large.safetensors large").stdout)["values"] == array.tolist()
    assert json.loads(run("shardwright show --json large.safetensors large --slice ::-1,::7").stdout)["values"] == array[::-1, ::7].tolist()


def test_bfloat16_prints_few_digits(run, checkpoints):
    inputs.write_safetensors(checkpoints / "b.safetensors", {"b": np.array([0.1, 1.0, -3.0], ml_dtypes.bfloat16)})
    assert run("shardwright show -q b.safetensors b").stdout == "[ 0.1  1.  -3. ]\n"


def test_not_a_number_in_json(run, checkpoints):
    inputs.write_safetensors(checkpoints / "n.safetensors", {"n": np.array([np.nan, np.inf, -np.inf], np.float32)})
    assert json.loads(run("shardwright show --json n.safetensors n").stdout)["values"] == ["NaN", "Infinity", "-Infinity"]
