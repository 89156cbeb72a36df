import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import inputs


@pytest.fixture(scope="session")
def environment(shardwright, tmp_path_factory):
    """Only what the tests mean to set; `shardwright` is the built program."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "shardwright").symlink_to(shardwright.path)
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
