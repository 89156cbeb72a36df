import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

# These run in processes of their own, with eight devices and on PyTorch: see test_backends.py.
collect_ignore = []
if "--xla_force_host_platform_device_count=8" not in os.environ.get("XLA_FLAGS", ""):
    collect_ignore += ["test_sharded.py", "test_callback_sharded.py"]
if os.environ.get("KERAS_BACKEND") != "torch":
    collect_ignore.append("test_torch.py")


@pytest.fixture(autouse=True)
def fresh_names():
    """Keras numbers its objects over the whole process. (To look for garbage each time would take half of the time of these tests.)"""
    import keras
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
