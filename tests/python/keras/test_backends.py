"""The other tests again, in processes of their own: on PyTorch, and on JAX with eight devices."""
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
DEVICES = "--xla_force_host_platform_device_count=8"

if keras.backend.backend() != "jax" or DEVICES in os.environ.get("XLA_FLAGS", ""):
    pytest.skip("already in one of them", allow_module_level=True)


def again(files, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not alone", *[str(HERE / name) for name in files]]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=1500, cwd=HERE.parents[2])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_on_torch():
    again(["test_roundtrip.py", "test_index.py", "test_mismatch.py", "test_layers.py", "test_cases.py", "test_archive.py", "test_callback.py", "test_torch.py"], KERAS_BACKEND="torch")


def test_on_eight_devices():
    again(["test_sharded.py", "test_callback_sharded.py"], KERAS_BACKEND="jax", XLA_FLAGS=DEVICES)


def test_jax_takes_the_memory_over(tmp_path):
    """Nothing is copied on the way in: this is what makes it fast."""
    import shardwright.keras as sk
    from shardwright.keras import backends
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
    kernel = model.layers[0].kernel
    landing = backends.land(kernel)
    (_, array), = landing.boxes
    array[...] = np.arange(4096).reshape(64, 64)
    kernel.assign(landing.finish())
    assert kernel.value.unsafe_buffer_pointer() == array.ctypes.data
    sk.save_weights(model, tmp_path / "m.weights.h5")
    sk.load_weights(model, tmp_path / "m.weights.h5")
    assert keras.ops.convert_to_numpy(kernel)[63, 63] == 4095
