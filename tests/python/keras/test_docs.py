"""The example runs, and docs/keras.md speaks of nothing that is not there."""
import inspect
import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

import shardwright
import shardwright.keras as sk

ROOT = pathlib.Path(__file__).resolve().parents[3]

if keras.backend.backend() != "jax":
    pytest.skip("once is enough", allow_module_level=True)


def test_example(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "examples" / "keras_digits.py", tmp_path], capture_output=True, text=True, check=False, timeout=600,
                          env={**os.environ, "KERAS_BACKEND": "jax"})
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(text) for text in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert len(losses) == 3 and losses[1] == losses[0] and losses[2] < losses[0]
    assert len(list(tmp_path.glob("digits_*.weights.h5"))) > 1


def test_page():
    text = (ROOT / "docs" / "keras.md").read_text()
    for name in set(re.findall(r"sk\.([a-z_]+)", text)):
        assert hasattr(sk, name), name
    for name in set(re.findall(r"shardwright\.([a-z_]+)\(", text)):
        assert hasattr(shardwright, name), name
    options = {option for function in (sk.save_weights, sk.load_weights, sk.save_model) for option in inspect.signature(function).parameters}
    named = set(re.findall(r"`([a-z_]+)=", text))
    assert named and named <= options


def test_everything_public_has_a_contract():
    for name in sk.__all__:
        assert (getattr(sk, name).__doc__ or "").strip(), name
