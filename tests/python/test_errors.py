"""One exception class per row of the error table, with the place in fields."""
import builtins
import errno
import pickle

import numpy as np
import pytest

import shardwright as sw
from shardwright import _core, errors


@pytest.mark.parametrize("row", _core.error_table(), ids=lambda row: row[0])
def test_every_code_has_its_class(row):
    code, name, base, retryable, _, _ = row
    cls = getattr(sw, name)
    assert issubclass(cls, sw.Error) and issubclass(cls, getattr(builtins, base))
    assert (cls.code, cls.retryable) == (code, retryable) and cls.__doc__
    made = errors._of_code(code, "what", "a/b", "t", 7, "x", "y", "use --max-shard-size, or --overwrite", ["while testing"])
    assert type(made) is cls
    assert (made.message, made.path, made.tensor, made.offset, made.found, made.expected, made.context) == ("what", "a/b", "t", 7, "x", "y", ("while testing",))
    assert str(made) == "a/b@7: tensor 't': what (found x, expected y)\nwhile testing\nHint: use max_shard_size, or overwrite=True"
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is cls and str(again) == str(made) and again.offset == 7
    bare = cls("what")
    assert str(bare) == "what" and bare.path is bare.tensor is bare.offset is bare.hint is None


def test_no_class_without_a_row():
    named = {row[1] for row in _core.error_table()}
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, sw.Error)}
    assert classes == named | {"Error", "TensorNotFoundError"}


def test_errors_of_files_say_where(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        sw.open(tmp_path / "model.safetensors")
    assert raised.value.path.endswith("model.safetensors")
    (tmp_path / "a.safetensors").write_bytes((30).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[2')
    with pytest.raises(sw.CorruptError) as raised:
        sw.open(tmp_path / "a.safetensors")
    assert raised.value.offset is not None and isinstance(raised.value, ValueError)
    (tmp_path / "b.bin").write_bytes(b"\x80\x02pickle")
    with pytest.raises(sw.UnsupportedError):
        sw.open(tmp_path / "b.bin")


def test_errors_of_the_system_have_the_codes_of_the_library(tmp_path):
    for number, cls in ((errno.ENOENT, sw.NotFoundError), (errno.ENOTDIR, sw.NotFoundError), (errno.EROFS, sw.PermissionDeniedError),
                        (errno.EDQUOT, sw.ResourceExhaustedError), (errno.EEXIST, sw.AlreadyExistsError), (errno.EIO, sw.IoError)):
        with pytest.raises(sw.Error) as raised, errors.errors_of("a/b"):
            raise OSError(number, "said")
        assert type(raised.value) is cls and str(raised.value) == "a/b: said"
    with pytest.raises(sw.NotFoundError, match="kept"), errors.errors_of("a/b"):
        raise sw.NotFoundError("kept")


def test_a_truncated_file_names_the_tensor_or_size(tmp_path):
    path = tmp_path / "a.safetensors"
    sw.save(path, {"w": np.arange(1000.0)})
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(sw.CorruptError) as raised:
        sw.open(path)
    assert raised.value.path == str(path) and raised.value.found and raised.value.expected


def test_a_budget_that_is_too_small(tmp_path):
    with pytest.raises(MemoryError, match="budget"):
        sw.save(tmp_path / "a.safetensors", {"a": np.zeros(3)}, memory=1000)
    assert not list(tmp_path.iterdir())


def test_no_room(tmp_path):
    """A petabyte: refused before a byte is made or written."""
    with pytest.raises(MemoryError) as raised:
        sw.save(tmp_path / "a.safetensors", [("huge", (2**50,), "uint8", lambda: pytest.fail("was called"))])
    assert "disk space" in str(raised.value) and not list(tmp_path.iterdir())
