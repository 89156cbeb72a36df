"""Which names of a model are one tensor, and under which of them it is saved."""
from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ..errors import InvalidArgumentError
from .sources import InFile, InMemory, Source, is_wrapped

_BLOCK_BYTES = 1 << 20


def groups_of(sources: Mapping[str, Source]) -> list[list[str]]:
    """Names with the same bytes, seen the same way: two or more of them."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, source in sources.items():
        identity = getattr(source, "identity", None)
        if identity is not None:
            groups[identity].append(name)
    return [names for names in groups.values() if len(names) > 1]


def overlapping(sources: Mapping[str, Source], left_out: Iterable[str] = ()) -> list[list[str]]:
    """Names whose memory overlaps, the same bytes seen the same way counted once. Parts of one storage that do not touch are no concern."""
    left = set(left_out)
    areas: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    seen = set()
    for name, source in sources.items():
        if name in left or not isinstance(source, InMemory) or is_wrapped(source.tensor) or source.identity is None or source.identity in seen:
            continue
        seen.add(source.identity)
        areas[str(source.tensor.device)].append((*extent_of(source.tensor), name))
    found: list[list[str]] = []
    for device in areas.values():
        end, group = 0, []
        for start, stop, name in sorted(device):
            if start >= end and group:
                found, group = found + [group] * (len(group) > 1), []
            group.append(name)
            end = max(end, stop)
        found += [group] * (len(group) > 1)
    return found


def extent_of(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte, and the one after the last."""
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def without_declared(model: torch.nn.Module, sources: dict[str, Source]) -> tuple[dict[str, Source], dict[str, str]]:
    """For transformers' models: every tensor once, under the name that loading ties the others to; and what was left out for what.

    A tie that only the class declares, not the configuration of this model, would not be tied again on loading: both names stay.
    InvalidArgumentError for names that share their bytes and are not declared at all.
    """
    patterns = [f"{path}.{key}" if path else key for path, module in model.named_modules() for key in (getattr(module, "_tied_weights_keys", None) or {})]
    declared: Mapping[str, str] = getattr(model, "all_tied_weights_keys", None) or {}
    kept_as: dict[str, str] = {}
    unknown: list[list[str]] = []
    for names in groups_of(sources):
        known = [n for n in sorted(names) if any(re.search(pattern, n) for pattern in patterns)]
        again = [n for n in known if n in declared or n in declared.values()]
        leave = again[:len(names) - 1]
        rest = [n for n in names if n not in leave]
        kept = next((n for n in rest if n not in known), rest[0])
        kept_as |= {n: kept for n in leave}
        if len([n for n in rest if n not in known]) > 1:
            unknown.append([n for n in rest if n not in known])
    unknown += overlapping(sources, kept_as)
    if unknown:
        raise InvalidArgumentError("tensors share memory, and the model does not declare them tied: loading would not tie them again",
                                   found="; ".join(", ".join(group) for group in unknown),
                                   hint="declare it in the class's _tied_weights_keys, or give one of them a copy: tensor.clone()")
    for alias, name in declared.items():  # hooks that keep a file a name have made two of one
        if alias in sources and name in sources and alias not in kept_as and name not in kept_as and alias != name:
            if sources[alias].identity != sources[name].identity and same_bytes(sources[alias], sources[name]):  # type: ignore[union-attr]
                kept_as[alias] = name
            elif sources[alias].identity != sources[name].identity:  # type: ignore[union-attr]
                warnings.warn(f"'{alias}' is declared tied to '{name}', and has other values: both are saved", stacklevel=4)
    return {n: s for n, s in sources.items() if n not in kept_as}, kept_as


def by_rule_of_safetensors(sources: dict[str, Source], discard: Iterable[str] = ()) -> tuple[dict[str, Source], dict[str, str]]:
    """For any other model, as safetensors' save_model(): of names that share memory the alphabetically first stays that covers its whole storage; and
    what was left out for what. InvalidArgumentError where none does."""
    discard = set(discard)
    kept_as: dict[str, str] = {}
    groups = groups_of(sources) + overlapping(sources)
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name
    for group in groups:
        for name in group[1:]:
            parents[root(name)] = root(group[0])
    together: dict[str, list[str]] = defaultdict(list)
    for name in sources:
        if name in parents:
            together[root(name)].append(name)
    for names in together.values():
        whole = sorted(n for n in names if _covers(sources[n]))
        if not whole:
            raise InvalidArgumentError("tensors share memory that none of them covers whole", found=", ".join(names),
                                       hint="give one of them a copy: tensor.clone()")
        kept = next((n for n in whole if n not in discard), whole[0])
        kept_as |= {n: kept for n in sorted(names) if n != kept}
    return {n: s for n, s in sources.items() if n not in kept_as}, kept_as


def _covers(source: Source) -> bool:
    if not isinstance(source, InMemory) or is_wrapped(source.tensor):
        return True
    t = source.tensor
    return t.data_ptr() == t.untyped_storage().data_ptr() and t.numel() * t.element_size() == t.untyped_storage().nbytes()


def same_bytes(a: Source, b: Source) -> bool:
    """Read in blocks. False where it cannot be told without onloading, or types differ."""
    if not all(isinstance(s, (InFile, InMemory)) for s in (a, b)) or (a.dtype, a.shape) != (b.dtype, b.shape):  # type: ignore[union-attr]
        return False
    if len({s.stored if isinstance(s, InFile) else s.dtype for s in (a, b)}) > 1:  # type: ignore[union-attr]
        return False
    if any(isinstance(s, InMemory) and (is_wrapped(s.tensor) or not s.tensor.is_contiguous()) for s in (a, b)):
        return False
    return all(np.array_equal(x, y) for x, y in zip(_blocks(a), _blocks(b)))


def _blocks(source: Any) -> Iterator[Any]:
    if isinstance(source, InMemory):
        flat = source.tensor.detach().reshape(-1).view(torch.uint8)
        for at in range(0, flat.numel(), _BLOCK_BYTES):
            yield flat[at:at + _BLOCK_BYTES].cpu().numpy()
        return
    left = source.stored.itemsize * int(np.prod(source.shape, dtype=np.int64))
    with open(source.path, "rb") as file:
        file.seek(source.offset)
        while left > 0:
            block = np.frombuffer(file.read(min(left, _BLOCK_BYTES)), np.uint8)
            left -= block.size or left
            yield block
