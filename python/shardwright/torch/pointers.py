"""Pointers of a live model into the files that it is saved over."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint import open as open_checkpoint
from ..errors import ResourceExhaustedError
from .conversions import whole
from .sources import Files, InFile, Onloaded, Source, _of_entry, hooks_of, is_loader, nbytes, unprefixed

# What no saved tensor has and the model still reads from the replaced files (buffers that are not saved, weights that are saved merged) stays in memory,
# up to so much.
_MOST_KEPT_BYTES = 256 << 20


@dataclass(frozen=True)
class _Pointer:
    loader: Any
    key: str
    path: str
    saved_as: str | None
    kept: torch.Tensor | None


@contextmanager
def moved_pointers(model: torch.nn.Module, directory: str, sources: Mapping[str, Source], entries: Sequence[str]) -> Iterator[None]:
    """While this lasts, the directory is replaced; what the model's hooks read from files that are gone or others then is read from the new ones.

    sources: what is saved, by its name there. entries: names of the single file and of the index.
    """
    pointers = _pointers_into(os.path.realpath(directory), model, sources)
    before = {pointer.path: _version(pointer.path) for pointer in pointers}
    yield
    stale = [pointer for pointer in pointers if _version(pointer.path) != before[pointer.path]]
    if not stale:
        return
    there = next(path for path in (os.path.join(directory, name) for name in entries[::-1]) if os.path.exists(path))
    with open_checkpoint(there) as saved:
        for pointer in stale:
            if pointer.saved_as is None:
                pointer.loader.state_dict[pointer.key] = pointer.kept
                continue
            file = os.path.realpath(saved[pointer.saved_as].files[0])
            pointer.loader.index[pointer.key] = {**pointer.loader.index[pointer.key], "safetensors_file": file, "weight_name": pointer.saved_as}


def loaders_of(model: torch.nn.Module) -> list[Any]:
    """What the hooks of a model read offloaded tensors with, each once."""
    found: dict[int, Any] = {}
    for module in model.modules():
        for hook in hooks_of(module):
            mapping, _ = unprefixed(hook.weights_map, "")
            if is_loader(mapping):
                found[id(mapping)] = mapping
    return list(found.values())


def _pointers_into(directory: str, model: torch.nn.Module, sources: Mapping[str, Source]) -> list[_Pointer]:
    files = Files()
    names = {source.identity: name for name, source in sources.items() if isinstance(source, (InFile, Onloaded)) and source.identity is not None}
    found = []
    kept_bytes = 0
    for loader in loaders_of(model):
        for key, info in loader.index.items():
            path = info.get("safetensors_file") if isinstance(info, Mapping) else None
            if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path) or key in loader.state_dict:
                continue
            path = os.path.abspath(path)
            if directory not in (os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path))):
                continue
            source = _of_entry(loader, key, files)
            if not isinstance(source, (InFile, Onloaded)):
                continue  # nothing was there before
            saved_as = names.get(source.identity)
            kept = None
            if saved_as is None:
                kept_bytes += nbytes(source)
                if kept_bytes > _MOST_KEPT_BYTES:
                    raise ResourceExhaustedError("the model reads tensors from files that are to be replaced, and the new files would not have them", tensor=key,
                                                 path=path, expected=f"at most {_MOST_KEPT_BYTES:,} bytes of them", hint="save into another directory")
                kept = whole(source)
            found.append(_Pointer(loader, key, path, saved_as, kept))
    return found


def _version(path: str) -> Any:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
