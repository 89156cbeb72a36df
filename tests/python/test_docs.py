"""What docs/python.md and the package's own text show does run, and names nothing that is not there."""
import pathlib
import re

import shardwright as sw

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_every_name_on_the_page_is_there():
    text = PAGE.read_text()
    names = set(re.findall(r"shardwright\.([A-Za-z_]+)\(", text)) | set(re.findall(r"`([A-Z][A-Za-z]+Error)`", text))
    builtin = {name for name in names if hasattr(__builtins__, name) or name in dir(__import__("builtins"))}
    assert len(names) > 15 and [name for name in names - builtin if not hasattr(sw, name)] == []


def test_everything_public_has_a_contract():
    for name in sw.__all__:
        value = getattr(sw, name)
        assert name in ("Progress", "Tensors", "__version__") or (value.__doc__ or "").strip(), name
    for cls in (sw.Checkpoint, sw.Tensor, sw.CheckpointManager, sw.Ranks):
        for name, value in vars(cls).items():
            plain = callable(value) or isinstance(value, property)
            assert name.startswith("_") or not plain or value.__doc__ or name == "ndim", f"{cls.__name__}.{name}"


def test_every_error_is_in_the_table():
    text = PAGE.read_text()
    assert [name for name in sw.__all__ if name.endswith("Error") and name != "Error" and f"`{name}`" not in text] == []
