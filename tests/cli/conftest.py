import os
import subprocess
from pathlib import Path

import pytest

import inputs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def program():
    """The built program: $SHARDWRIGHT_BIN, else build/shardwright."""
    path = Path(os.environ.get("SHARDWRIGHT_BIN", ROOT / "build" / "shardwright")).resolve()
    if not path.exists():
        pytest.fail(f"no program at {path}: build it, or set SHARDWRIGHT_BIN")
    return path


@pytest.fixture(scope="session")
def environment(program, tmp_path_factory):
    """Only what the tests mean to set; `shardwright` is the built program."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "shardwright").symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHARDWRIGHT_") and name not in ("NO_COLOR", "COLUMNS")}
    return kept | {"PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


@pytest.fixture
def checkpoints(tmp_path):
    inputs.make_all(tmp_path)
    return tmp_path


@pytest.fixture
def run(checkpoints, environment):
    """Runs a shell line among the inputs: run("shardwright ls small.safetensors")."""

    def call(line, **variables):
        return subprocess.run(["bash", "-c", line], cwd=checkpoints, env=environment | variables, capture_output=True, text=True, timeout=120)

    return call
