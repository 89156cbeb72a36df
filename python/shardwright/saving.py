"""Saving: arrays and producers to a checkpoint of any format that can be written."""
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Union

from . import _core
from .arrays import Filler, Producer, Source, source_of
from .checkpoint import Tensor
from .dtypes import parse
from .errors import InvalidArgumentError
from .memory import DEFAULT_MEMORY, size
from .progress import Progress, reporting
from .ranks import Ranks, required_ranks
from .tree import is_unicode

Tensors = Union[Mapping[str, Any], Iterable[tuple[Any, ...]]]
"""Names to arrays (NumPy's, PyTorch's, JAX's, or anything with __array__ or __dlpack__), lazy tensors of an opened checkpoint, Producer
or Sharded; or an iterable of (name, any of these) and (name, shape, dtype, function that returns the array)."""


@dataclass(frozen=True)
class CopySummary:
    """What was written. files: (name within the target, bytes; None where they are not known beforehand)."""

    source: str
    target: str
    format: str
    tensors: int
    shards: int
    bytes_read: int
    bytes_written: int
    peak_memory_bytes: int
    seconds: float
    reread: float
    files: list[tuple[str, int | None]]
    warnings: list[str]


def save(path: str | os.PathLike[str], tensors: Tensors, *, format: str | None = None, max_shard_size: int | str | None = None,
         metadata: Mapping[str, str] | None = None, ties: Mapping[str, str] | None = None, dtype: Any = None,
         options: Mapping[str, str] | None = None, overwrite: bool = False, strict: bool = False, manifest: bool = False,
         dry_run: bool = False, memory: int | str = DEFAULT_MEMORY, threads: int = 0, progress: Progress = None,
         ranks: Ranks | None = None) -> CopySummary:
    """Writes tensors to a checkpoint, all or nothing: what stood at `path` is there, whole, until the new one is.

    path: its ending says the format: .safetensors, .safetensors.index.json, .weights.h5, .weights.json, .bin, .pt, .pth; anything else is a directory
        with model.safetensors in it, or its shards and index.
    tensors: see shardwright.Tensors. Order is kept where the format has one. Arrays are written from where they lie: contiguous ones
        are not copied, others are packed part by part. They must not change before save() returns.
    format: name of a format, for a directory that is to have another one (see shardwright.formats()).
    max_shard_size: "5GB" (10^9) or "5GiB" (2^30), or a whole number of bytes. None: one file where the name is a file's, 5 GB a shard
        for a directory or an index.
    metadata: text beside the tensors, str to str.
    ties: alias -> name in tensors: further names for the same values, stored once where the format can.
    dtype: cast floating tensors to this type. options: what only one format knows, by name; for "orbax" compression, zarr, api, item (see
        docs/formats/orbax.md).
    overwrite: replace a checkpoint that is there; else AlreadyExistsError. strict: a tensor larger than max_shard_size is an error
        instead of a warning. manifest: read back what was written and put shardwright.manifest.json with content hashes beside it.
    dry_run: check everything, say what would be written, and write nothing.
    memory: bytes that may be used beside the arrays. threads: workers; 0: as many as pay. progress: see shardwright.Progress.
    ranks: processes that save together; every one calls this with what it holds, pieces of Sharded covering its own part only. None: those of
        the job when a tensor is spread over processes (a jax.Array that is not all here, a DTensor), else this process alone. What they
        write is what one process would, byte for byte: each box once, all visible at once, or nothing.

    Raises InvalidArgumentError, UnsupportedError (a dtype that checkpoints do not have), AlreadyExistsError, ResourceExhaustedError
    (disk full), AbortedError, and what a producer raises. On Ctrl-C what was begun is removed, and KeyboardInterrupt is raised.
    """
    with telling(ranks):
        values = {"metadata": metadata_json(metadata)} if metadata else {}
        request = {"target": os.fspath(path), "format": format, "max_shard_bytes": None if max_shard_size is None else size(max_shard_size, "max_shard_size"),
                   "dtype": None if dtype is None else parse(dtype), "settings": list((options or {}).items()), "overwrite": bool(overwrite),
                   "strict": bool(strict), "manifest": bool(manifest), "dry_run": bool(dry_run)}
        sources = sources_of(tensors)
    return write(sources, ties or {}, values, request, memory, threads, progress, ranks)


@contextmanager
def telling(ranks: Ranks | None) -> Iterator[None]:
    """What keeps this process from taking part is told to the others, who wait for it."""
    try:
        yield
    except Exception as error:
        if ranks is not None:
            _core.refuse_write(ranks._core, f"{type(error).__name__}: {error}")
        raise


def metadata_json(metadata: Mapping[str, str]) -> str:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError("metadata is text to text", found=f"{key!r}: {value!r}", hint="json.dumps() makes text of other values")
        if not is_unicode(key + value):
            raise InvalidArgumentError("metadata has half a surrogate pair, which no file can hold", found=ascii(f"{key}: {value}")[:80])
    return json.dumps(dict(metadata), ensure_ascii=False)


def sources_of(tensors: Tensors) -> list[Source]:
    """Everything that is to be saved, in order. InvalidArgumentError for names given twice."""
    sources: dict[str, Source] = {}
    for item in tensors.items() if isinstance(tensors, Mapping) else tensors:
        if not isinstance(item, tuple) or len(item) not in (2, 4) or not isinstance(item[0], str):
            raise InvalidArgumentError("tensors are (name, array) or (name, shape, dtype, function)", found=repr(item)[:80])
        name = item[0]
        value = item[1] if len(item) == 2 else Producer(item[1], item[2], whole=item[3])
        if name in sources:
            raise InvalidArgumentError("the name is given twice", tensor=name)
        sources[name] = _of_lazy(name, value) if isinstance(value, Tensor) else source_of(name, value)
    return list(sources.values())


def _of_lazy(name: str, tensor: Tensor) -> Source:
    """A tensor of an opened checkpoint: read while it is written, part by part."""
    def box(start: tuple[int, ...], stop: tuple[int, ...]) -> Any:
        return tensor[tuple(map(slice, start, stop))]
    return Source(name, tensor._type, tensor.shape, producer=Producer(tensor.shape, tensor.dtype, box=box), keep=tensor)


def write(sources: list[Source], ties: Mapping[str, str], values: Mapping[str, str], request: Mapping[str, Any], memory: int | str,
          threads: int, progress: Progress, ranks: Ranks | None = None, side_files: Iterable[tuple[str, str]] = ()) -> CopySummary:
    """save() by its parts: values are JSON texts by key ("metadata", "keras.names"), request has the fields of CopyRequest, side_files are
    names in a target directory and absolute paths."""
    spread = next((s.name for s in sources if s.spread), None)
    if spread is not None and ranks is None:
        ranks = required_ranks(f"tensor '{spread}'")
    with telling(ranks):
        budget_bytes = size(memory, "memory")
        given: list[Any] = [(s.name, s.dtype, s.shape, s.where) for s in sources]
        ids = {s.name: i for i, s in enumerate(sources)}
        pairs: list[tuple[int, int]] = []
        for alias, kept in ties.items():
            if alias in ids or kept not in ids:
                raise InvalidArgumentError("a tie is a new name for a tensor that is saved", tensor=alias, found=f"{alias!r}: {kept!r}")
            pairs.append((len(given), ids[kept]))
            given.append((alias, sources[ids[kept]].dtype, sources[ids[kept]].shape, []))
    fill = Filler(sources) if any(s.producer is not None for s in sources) else None
    with reporting(progress) as report:
        return CopySummary(**_core.write(given, pairs, list(values.items()), dict(request), fill, budget_bytes, threads, report,
                                         None if ranks is None else ranks._core, list(side_files)))
