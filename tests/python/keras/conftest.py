import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

# These run in a process of their own, with eight devices: see test_backends.py.
collect_ignore = [] if "--xla_force_host_platform_device_count=8" in os.environ.get("XLA_FLAGS", "") else ["test_sharded.py"]


@pytest.fixture(autouse=True)
def fresh_names():
    """Keras numbers its objects over the whole process."""
    import keras
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
