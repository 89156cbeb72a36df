"""Sources of a model's tensors into files, through the engine."""
from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..arrays import Producer
from ..arrays import Source as Saved
from ..arrays import _torch_view, box_of_dtensor, source_of
from ..dtypes import numpy_dtype
from ..errors import InvalidArgumentError, UnsupportedError
from ..memory import size
from ..progress import Progress
from ..ranks import Ranks, required_ranks
from ..saving import CopySummary, metadata_json, telling, write
from .sources import InFile, InMemory, Missing, Onloaded, PartOfSpread, Source, contiguous_strides, is_spread, is_wrapped, nbytes


def refuse_missing(sources: Mapping[str, Source]) -> None:
    """InvalidArgumentError naming every tensor that has no data anywhere."""
    missing = {name: source.reason for name, source in sources.items() if isinstance(source, Missing)}
    if not missing:
        return
    reasons: dict[str, list[str]] = {}
    for name, reason in missing.items():
        reasons.setdefault(reason, []).append(name)
    told = "; ".join(f"{', '.join(map(repr, names))}: {reason}" for reason, names in reasons.items())
    raise InvalidArgumentError(f"{len(missing)} of {len(sources)} tensors have no data anywhere: {told}", tensor=next(iter(missing)))


def saved(name: str, source: Source) -> Saved:
    """As what the engine takes. UnsupportedError for types that checkpoints do not have."""
    if isinstance(source, InMemory):
        if is_wrapped(source.tensor) and not is_spread(source.tensor):
            raise UnsupportedError(f"a {type(source.tensor).__name__} is made of other tensors, and what they are called in a checkpoint is not known",
                                   tensor=name, hint="give its parts: state_dict=")
        return source_of(name, source.tensor)
    if isinstance(source, PartOfSpread):
        return box_of_dtensor(name, source.tensor.detach(), source.start, source.extents, source.dims)
    dtype = type_name(source.dtype, name)  # type: ignore[union-attr]
    if isinstance(source, InFile):
        plain = source.strides == contiguous_strides(source.shape)
        last = 0 if 0 in source.shape else 1 + sum((n - 1) * step for n, step in zip(source.shape, source.strides))
        where = (source.path, source.file_bytes, source.version, source.offset, last * source.stored.itemsize, type_name(source.stored, name),
                 [] if plain else list(source.strides))
        return Saved(name, dtype, source.shape, where)
    assert isinstance(source, Onloaded)
    load = source.load

    def whole() -> Any:
        return _torch_view(load().detach().cpu().resolve_conj().resolve_neg())
    return Saved(name, dtype, source.shape, producer=Producer(source.shape, dtype, whole=whole))


def type_name(dtype: torch.dtype, name: str) -> str:
    text = str(dtype).removeprefix("torch.")
    try:
        numpy_dtype(text)
    except TypeError:
        raise UnsupportedError(f"checkpoints have no type for torch.{text}", tensor=name) from None
    return text


def storages_of(sources: Mapping[str, Source], converted: Mapping[str, tuple[int, int]], alone: Mapping[str, bool]) -> str | None:
    """What huggingface_hub counts when it cuts shards: of tensors in one storage the whole, once. None when there are none.

    converted: a storage's number and bytes, of what is no whole weight of the model.
    """
    # What would be gathered has storages of its own.
    spread = any(isinstance(s, PartOfSpread) or (isinstance(s, InMemory) and is_wrapped(s.tensor)) for s in sources.values())
    numbers: dict[Any, int] = {}
    rows: list[Any] = []
    for name, source in sources.items():
        if name in converted:
            storage, size_bytes = converted[name]
            rows.append([numbers.setdefault(storage, len(numbers)), size_bytes])
        elif isinstance(source, InMemory) and alone.get(name) and source.tensor.numel() and not is_wrapped(source.tensor) and not spread:
            rows.append([numbers.setdefault(name, len(numbers)), source.tensor.untyped_storage().nbytes()])
        else:
            rows.append(None)
    shared = len(numbers) < sum(row is not None for row in rows)
    plain = not shared and all(row is None or row[1] == nbytes(source) for row, source in zip(rows, sources.values()))
    return None if plain else json.dumps(rows)


def available_memory() -> int | None:
    """Bytes that this process may still take: of the machine, and of its control group. None where nobody says."""
    found = []
    try:
        with open("/proc/meminfo") as lines:
            found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        with open("/proc/self/cgroup") as lines:
            group = next((line.strip().split("::", 1)[1] for line in lines if line.startswith("0::")), "/")
        folder = "/sys/fs/cgroup" + group
        with open(folder + "/memory.max") as most, open(folder + "/memory.current") as now:
            limit = most.read().strip()
            found += [max(0, int(limit) - int(now.read()))] if limit != "max" else []
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def warn_of_memory(sources: Mapping[str, Source], memory: int | str) -> None:
    budget = size(memory, "memory")
    onloaded = {name: nbytes(s) for name, s in sources.items() if isinstance(s, Onloaded)}
    largest = max(onloaded, key=lambda name: onloaded[name], default=None)
    need, free = budget + (onloaded[largest] if largest is not None else 0), available_memory()
    if free is None or free >= need:
        return
    told = f" and {onloaded[largest]:,} bytes for '{largest}', the largest tensor to be onloaded" if largest is not None else ""
    warnings.warn(f"saving needs {need:,} bytes of memory ({budget:,} of budget{told}), and {free:,} are free", ResourceWarning, stacklevel=4)


def write_sources(path: str, sources: Mapping[str, Source], *, metadata: Mapping[str, str], request: Mapping[str, Any],
                  storages: str | None, side_files: Sequence[tuple[str, str]], memory: int | str, threads: int, progress: Progress,
                  ranks: Ranks | None = None) -> CopySummary:
    if ranks is None and (spread := next((name for name, source in sources.items() if _over_processes(source)), None)) is not None:
        ranks = required_ranks(f"tensor '{spread}'")
    with telling(ranks):
        values = {"metadata": metadata_json(metadata)} if metadata else {}
        if storages is not None:
            values["safetensors.storages"] = storages
        given = [saved(name, source) for name, source in sources.items()]
    return write(given, {}, values, {"target": os.fspath(path), **request}, memory, threads, progress, ranks, side_files)


def _over_processes(source: Source) -> bool:
    return isinstance(source, (InMemory, PartOfSpread)) and is_spread(source.tensor) and source.tensor.device_mesh.size() > 1  # type: ignore[attr-defined]


def elements(source: Source) -> int:
    return math.prod(source.shape)  # type: ignore[union-attr]
