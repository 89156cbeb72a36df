"""Trees of a training's state, held against one another."""
import numpy as np


def same(found, expected):
    """Types, keys in any order, dtypes, shapes and every byte."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, dict):
        assert set(found) == set(expected) and len(found) == len(expected)
        for name in expected:
            same(found[name], expected[name])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            same(a, b)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()
    else:
        assert found == expected
