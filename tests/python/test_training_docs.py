"""What the pages on training show runs, and goes on where it stopped."""
import pathlib
import re

import pytest

import shardwright

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def blocks_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page, needs", [("torch_training.md", ["torch"]), ("jax_training.md", ["jax", "flax", "optax"])])
def test_page(tmp_path, monkeypatch, page, needs):
    for name in needs:
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    first, *others = blocks_of(page)
    for stop in (20, 30):
        exec(first.replace("30):", f"{stop}):"), names := {})
        assert names["latest"] == (None if stop == 20 else 19) and names["manager"].directory == str(tmp_path / "run")
    with shardwright.CheckpointManager("run/") as manager:
        assert manager.all_steps() == [9, 19, 29]
    for block in others:
        exec(block, names)
