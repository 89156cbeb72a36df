"""What goes wrong, as exceptions: one class per error code of the library, each also the built-in that fits it.

All derive from :class:`Error` and carry the place in fields, so that programs need not parse text.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import _core


class Error(Exception):
    """Any failure that shardwright reports. ``str()`` gives one line for people, and the hint on a second one.

    code: lower-case name of the error code, "corrupt".
    message: what is wrong, without the place.
    tensor, path: name of the tensor and file concerned; None when there is none.
    offset: byte offset within ``path``; None when there is none.
    found, expected: what was there, and what should have been; None when that does not apply.
    hint: what to do next; None when nothing is known.
    context: what was being done, outermost last.
    retryable: whether trying again may help.
    """

    code: str = "internal"
    retryable: bool = False

    def __init__(self, message: str, *, path: str | None = None, tensor: str | None = None, offset: int | None = None,
                 found: str | None = None, expected: str | None = None, hint: str | None = None, context: Sequence[str] = ()):
        self.message = message
        self.path = path or None
        self.tensor = tensor or None
        self.offset = offset
        self.found = found or None
        self.expected = expected or None
        self.hint = hint or None
        self.context = tuple(context)
        super().__init__(message)

    def __str__(self) -> str:
        place = "" if self.path is None else f"{self.path}@{self.offset}: " if self.offset is not None else f"{self.path}: "
        tensor = f"tensor '{self.tensor}': " if self.tensor else ""
        sides = [f"{word} {text}" for word, text in (("found", self.found), ("expected", self.expected)) if text]
        line = place + tensor + self.message + (f" ({', '.join(sides)})" if sides else "")
        return "\n".join([line, *self.context, *([f"Hint: {self.hint}"] if self.hint else [])])

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), dict(self.__dict__))


def _rebuilt(cls: type[Error], fields: dict[str, Any]) -> Error:
    error = cls(fields["message"])
    error.__dict__.update(fields)
    return error


class InvalidArgumentError(Error, ValueError):
    """The request cannot be meant."""


class NotFoundError(Error, FileNotFoundError):
    """A file or tensor that was asked for is not there."""


class TensorNotFoundError(NotFoundError, KeyError):
    """No tensor of this name; the hint has near ones."""


class AlreadyExistsError(Error, FileExistsError):
    """The target is there, and may not be replaced."""


class CorruptError(Error, ValueError):
    """Bytes contradict their format, their index or their checksum."""


class UnsupportedError(Error, NotImplementedError):
    """Valid, but a format, dtype or feature that this build cannot handle."""


class IoError(Error, OSError):
    """The operating system reported an input or output error."""


class UnavailableError(Error, OSError):
    """Temporary; trying again may help."""


class PermissionDeniedError(Error, PermissionError):
    """Not allowed."""


class ResourceExhaustedError(Error, MemoryError):
    """Memory budget, disk space, inodes or open files."""


class AbortedError(Error, InterruptedError):
    """Stopped on request, or the source changed while it was read."""


class InternalError(Error, RuntimeError):
    """A bug in shardwright."""


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """What the operating system tells Python within the block, as an Error that concerns `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, Error):
            raise
        raise _BY_CODE[_core.code_of_errno(error.errno or 0)](error.strerror or str(error), path=path) from error


def _classes() -> dict[str, type[Error]]:
    """By code; the library's table decides which there are."""
    found: dict[str, type[Error]] = {}
    for code, name, _, retryable, _, _ in _core.error_table():
        found[code] = globals()[name]
        found[code].code, found[code].retryable = code, retryable
    return found


_BY_CODE = _classes()
# The library's hints speak of the program's options.
_WORDS = {"--overwrite": "overwrite=True", "--strict": "strict=True", "--to": "format", "`shardwright formats`": "shardwright.formats()"}


def _in_python(hint: str) -> str:
    hint = re.sub(r"`shardwright formats`|--(?:overwrite|strict|to)\b", lambda word: _WORDS[word.group()], hint)
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda option: option.group(1).replace("-", "_"), hint)


def _of_code(code: str, message: str, path: str, tensor: str, offset: int | None, found: str, expected: str, hint: str,
             context: list[str]) -> Error:
    """Called by the extension module to make what it raises."""
    return _BY_CODE[code](message, path=path, tensor=tensor, offset=offset, found=found, expected=expected, hint=_in_python(hint),
                          context=context)
