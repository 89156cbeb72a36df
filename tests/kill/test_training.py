"""A training run killed at random moments: see training.py. `make kill` does it more often."""
import os
import pathlib
import random
import re
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parent / "training.py"


def test_a_run_that_is_killed_goes_on_bit_for_bit(tmp_path):
    kills = int(os.environ.get("KILLS", "20"))
    seed = random.SystemRandom().randrange(1 << 30)
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "run", str(kills), str(seed)], capture_output=True, text=True, timeout=60 + 10 * kills,
                          check=False)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}\n{done.stderr}"
    print(done.stdout)
    between = int(re.search(r"save and commit: (\d+)", done.stdout).group(1))
    assert between >= kills / 2, done.stdout
