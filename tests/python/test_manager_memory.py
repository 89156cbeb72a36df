"""Memory of a process that saves steps again and again."""
import subprocess
import sys

import pytest

pytestmark = pytest.mark.xdist_group("memory")

SAVES = """
import sys
import numpy as np
import shardwright

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) // 1024

state = {f"w{i}": np.ones(125_000) for i in range(4)}
seen = []
with shardwright.CheckpointManager(sys.argv[1], keep_last=2) as manager:
    for step in range(50):
        state["w0"][0] = step
        manager.save(step, state, metrics={"loss": 1.0})
        seen.append(anonymous())
# The least of several: a save may be under way, or not.
print(seen[0], min(seen[5:15]), min(seen[-10:]), anonymous())
"""


def test_fifty_saves_take_what_ten_take(tmp_path):
    """4 MB of state: one copy of it, and the engine's buffers, from the first save on; given back in the end."""
    done = subprocess.run([sys.executable, "-c", SAVES, str(tmp_path / "run")], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, early, late, end = map(int, done.stdout.split())
    assert late <= early + 2, done.stdout
    assert end <= first + 1, done.stdout


SHORT = """
import resource, sys
import numpy as np
import shardwright

state = {"w": np.ones(40_000_000)}
copying = shardwright.CheckpointManager(sys.argv[1] + "/copy", hold="copy")
choosing = shardwright.CheckpointManager(sys.argv[1] + "/auto")
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (200 << 20),) * 2)
try:
    copying.save(1, state)
except shardwright.ResourceExhaustedError as error:
    print(error)
choosing.save(1, state)
print(choosing.all_steps(), copying.all_steps())
"""


def test_no_memory_for_a_copy_is_no_end(tmp_path):
    """320 MB of state, and room for 200 MB: said, or saved before save() returns."""
    done = subprocess.run([sys.executable, "-c", SHORT, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said, steps = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert "not enough memory" in said and steps == "[1] []", done.stdout
