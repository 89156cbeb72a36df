"""What the program does, from Python: copy, verify, diff, hash, info, reindex."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _core
from .checkpoint import open as open_checkpoint
from .dtypes import parse, short_name
from .errors import Error
from .memory import DEFAULT_MEMORY, size
from .progress import Progress, reporting
from .saving import CopySummary

Path = str | os.PathLike[str]


def _globs(globs: str | Iterable[str]) -> list[str]:
    return [globs] if isinstance(globs, str) else list(globs)


def copy(source: Path, target: Path, *, format: str | None = None, max_shard_size: int | str | None = None, dtype: Any = None,
         include: str | Iterable[str] = (), exclude: str | Iterable[str] = (), rename: Mapping[str, str] | None = None,
         options: Mapping[str, str] | None = None, overwrite: bool = False, strict: bool = False, manifest: bool = False, dry_run: bool = False, memory: int | str = DEFAULT_MEMORY, threads: int = 0,
         isolate: bool = False, progress: Progress = None) -> CopySummary:
    """Writes a checkpoint again, in another format, shard size or dtype, whatever its size in bounded memory.

    source, target: paths as open() and save() take them; onto the source itself is a replacement in place. Side files (configuration,
        tokenizer) go along into a directory.
    include, exclude: a glob of the source's names, or several. rename: Python regular expressions -> replacements, applied in order.
    Everything else as in save(). Raises what open() and save() raise.
    """
    request: dict[str, object] = {
        "source": os.fspath(source), "target": os.fspath(target), "format": format,
        "max_shard_bytes": None if max_shard_size is None else size(max_shard_size, "max_shard_size"),
        "dtype": None if dtype is None else parse(dtype), "include": _globs(include), "exclude": _globs(exclude),
        "rename": list((rename or {}).items()), "settings": list((options or {}).items()), "overwrite": bool(overwrite), "strict": bool(strict),
        "manifest": bool(manifest), "dry_run": bool(dry_run)}
    with reporting(progress) as report:
        return CopySummary(**_core.copy(request, size(memory, "memory"), threads, bool(isolate), report))


@dataclass(frozen=True)
class Verification:
    """findings: what is wrong, as exceptions that were not raised; empty when the checkpoint is sound, and then this is true.
    peak_memory_bytes: of anonymous memory, beyond what there was before."""

    tensors: int
    bytes_checked: int
    peak_memory_bytes: int
    manifest: bool
    findings: list[Error]

    def __bool__(self) -> bool:
        return not self.findings


def verify(path: Path, *, full: bool = False, against: Path | None = None, memory: int | str = DEFAULT_MEMORY, threads: int = 0,
           isolate: bool = False, progress: Progress = None) -> Verification:
    """Looks for what is wrong with a checkpoint: headers, sizes, index against shards.

    full: read every byte, check checksums, and content hashes where there is a manifest. against: a manifest file to check against
    (implies full). What is wrong is a finding, not raised; raises only what makes looking impossible (NotFoundError, ...).
    """
    against = "" if against is None else os.fspath(against)
    with reporting(progress) as report:
        found = _core.verify(os.fspath(path), bool(full or against), against, size(memory, "memory"), threads, bool(isolate), report)
    return Verification(**found)


class Difference(NamedTuple):
    """change: "added" (only in b), "removed" (only in a), "dtype", "shape" or "value"."""

    name: str
    change: str
    max_abs_diff: float | None
    detail: str


def diff(a: Path, b: Path, *, names_only: bool = False, atol: float = 0.0, rtol: float = 0.0, memory: int | str = DEFAULT_MEMORY,
         threads: int = 0, isolate: bool = False, progress: Progress = None) -> list[Difference]:
    """What differs between two checkpoints of any formats; an empty list when nothing does.

    names_only: look at names, shapes and dtypes only. atol, rtol: values are equal when |a - b| <= atol + rtol * |b|; both 0: equal bits.
    """
    with reporting(progress) as report:
        rows = _core.diff(os.fspath(a), os.fspath(b), bool(names_only), atol, rtol, size(memory, "memory"), threads, bool(isolate), report)
    return [Difference(*row) for row in rows]


class TensorHash(NamedTuple):
    """hash: 32 hexadecimal digits of the values, the same in any format and sharding."""

    dtype: str
    shape: tuple[int, ...]
    hash: str


def hash(path: Path, *, write: bool = False, memory: int | str = DEFAULT_MEMORY, threads: int = 0, isolate: bool = False,
         progress: Progress = None) -> dict[str, TensorHash]:
    """Content hashes by tensor, in the checkpoint's order: two checkpoints hold the same when these are equal.

    write: also make shardwright.manifest.json beside the checkpoint, which verify() then checks against.
    """
    with reporting(progress) as report:
        rows = _core.hash(os.fspath(path), bool(write), size(memory, "memory"), threads, bool(isolate), report)
    return {name: TensorHash(short_name(dtype), shape, text) for name, dtype, shape, text in rows}


@dataclass(frozen=True)
class Reindexed:
    """index: file written. added, removed, moved: names of tensors, against the old index."""

    index: str
    tensors: int
    shards: int
    added: list[str]
    removed: list[str]
    moved: list[str]


def reindex(directory: Path, *, dry_run: bool = False, progress: Progress = None) -> Reindexed:
    """Makes the index of a sharded set anew from the headers of its shards."""
    with reporting(progress) as report:
        return Reindexed(**_core.reindex(os.fspath(directory), bool(dry_run), report))


@dataclass(frozen=True)
class Info:
    """dtypes: safetensors' name -> (tensors, bytes); shards: (file, tensors, bytes); ties: alias -> name that holds the bytes."""

    path: str
    format: str
    tensors: int
    parameters: int
    nbytes: int
    dtypes: dict[str, tuple[int, int]]
    shards: list[tuple[str, int, int]]
    ties: dict[str, str]
    metadata: dict[str, Any]
    side_files: list[str]


def info(path: Path, *, isolate: bool = False) -> Info:
    """A checkpoint in a few numbers, from its metadata alone. Every name counts as a tensor; what several share counts once in bytes."""
    with open_checkpoint(path, isolate=isolate) as checkpoint:
        return Info(**checkpoint._core.info(), ties=checkpoint.ties, metadata=checkpoint.metadata, side_files=checkpoint.side_files)


class Format(NamedTuple):
    name: str
    description: str
    files: str
    writable: bool
    sharded: bool


def formats() -> list[Format]:
    """The formats that can be read, and which of them can be written."""
    return [Format(*row) for row in _core.formats()]
