"""What every Python test shares: the program under test, and its answers as data."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tests run beside each other: threads of PyTorch that spin for one another would take a core from them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell without job control starts what runs in the background deaf to Ctrl-C, nohup to hanging up, and children inherit that: tests send
# these to them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT / "tests"))  # for what tests share


class Program:
    """The shardwright program: runs it, checks its exit code, parses its JSON."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def run(self, *args, code: int = 0, **kwargs) -> subprocess.CompletedProcess:
        """Runs `shardwright ARGS` and asserts the exit code."""
        kwargs.setdefault("timeout", 300)
        command = [str(self.path), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **kwargs)
        assert done.returncode == code, f"{command} gave {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done

    def json(self, *args, code: int = 0, **kwargs):
        """The one JSON document that `--json` prints."""
        return json.loads(self.run(*args, "--json", code=code, **kwargs).stdout)

    def lines(self, *args, code: int = 0, **kwargs) -> list[dict]:
        """The JSON lines that `--json` prints."""
        text = self.run(*args, "--json", code=code, **kwargs).stdout
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def copy(self, source, target, *args, **kwargs) -> dict:
        """`copy`; its summary, or its plan with --dry-run."""
        last = self.lines("copy", source, target, *args, **kwargs)[-1]
        assert last["type"] in ("summary", "plan"), last
        return last


@pytest.fixture(scope="session")
def shardwright() -> Program:
    path = pathlib.Path(os.environ.get("SHARDWRIGHT_BIN", ROOT / "build" / "shardwright"))
    assert path.is_file(), f"{path} is not there: run `make build`, or set SHARDWRIGHT_BIN"
    return Program(path.resolve())


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    return DATA
