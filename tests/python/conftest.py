import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def root(tmp_path):
    """Where a run is to be."""
    return tmp_path / "run"


@pytest.fixture
def rng(request) -> np.random.Generator:
    """Seeded by the test's name: the same values on every run, other values in every test."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture
def weights(rng) -> dict:
    """One array of each kind that a checkpoint holds, every one with values of its own."""
    arrays = {
        "w": rng.standard_normal((30, 7)).astype("f4"),
        "half": rng.standard_normal((5, 4)).astype("f2"),
        "bf16": rng.standard_normal((3, 8)).astype(BF16),
        "f8": rng.standard_normal(16).astype(ml_dtypes.float8_e4m3fn),
        "f8b": rng.standard_normal((2, 2)).astype(ml_dtypes.float8_e5m2),
        "steps": np.array(12345678901),
        "mask": rng.integers(0, 2, (4, 3)).astype(bool),
        "bytes": rng.integers(0, 256, 11).astype("u1"),
        "complex": (rng.standard_normal(3) + 1j * rng.standard_normal(3)).astype("c8"),
        "double": rng.standard_normal((1, 2, 3, 4)),
        "nothing": np.zeros((0, 3), "f4"),
    }
    return arrays
