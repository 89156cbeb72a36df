import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

# Runs in a process of its own, with eight devices: see test_processes.py.
DEVICES = "--xla_force_host_platform_device_count=8"
collect_ignore = [] if DEVICES in os.environ.get("XLA_FLAGS", "") else ["test_jax.py"]
