"""What a rank of a device mesh holds of a tensor under DTensor placements."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

Range = tuple[int, int]
"""First element and number of elements."""


@dataclass(frozen=True)
class Part:
    """ranges: per dimension, what is held of it, in this order; the local tensor has them one after the other."""

    ranges: tuple[tuple[Range, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(sum(count for _, count in ranges) for ranges in self.ranges)

    def boxes(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Where each box begins in the tensor, and which slices of the local tensor it fills."""
        placed = []
        for ranges in self.ranges:
            ends = list(itertools.accumulate((count for _, count in ranges), initial=0))
            placed.append([(first, slice(at, at + count)) for (first, count), at in zip(ranges, ends) if count] if ranges else [])
        for box in itertools.product(*placed):
            yield tuple(first for first, _ in box), tuple(part for _, part in box)


def part_of(shape: Sequence[int], sizes: Sequence[int], coordinate: Sequence[int], placements: Sequence[Any]) -> Part:
    """sizes, coordinate: of the mesh, and of the rank in it. As torch cuts: mesh dimension after mesh dimension, into chunks of equal
    size, of which the last ones may be shorter or empty. REQUIRES: problem_of() finds nothing."""
    ranges: list[list[Range]] = [[(0, extent)] for extent in shape]
    for size, index, placement in zip(sizes, coordinate, placements):
        if isinstance(placement, _StridedShard):
            blocks = _chunks(ranges[placement.dim], placement.split_factor)
            ranges[placement.dim] = [one for block in blocks for one in _chunks(block, size)[index]]
        elif isinstance(placement, Shard):
            ranges[placement.dim] = _chunks(ranges[placement.dim], size)[index]
    return Part(tuple(tuple(_joined(held)) for held in ranges))


def _chunks(ranges: list[Range], parts: int) -> list[list[Range]]:
    """Cut into `parts`, as torch.chunk does, and empty ones for those that it leaves out."""
    total = sum(count for _, count in ranges)
    step = -(-total // parts)
    return [_slice(ranges, min(i * step, total), min((i + 1) * step, total)) for i in range(parts)]


def _slice(ranges: list[Range], begin: int, end: int) -> list[Range]:
    """Elements [begin, end) of what the ranges hold, counted through."""
    out: list[Range] = []
    at = 0
    for first, count in ranges:
        low, high = max(begin, at), min(end, at + count)
        if low < high:
            out.append((first + low - at, high - low))
        at += count
    return out


def _joined(ranges: list[Range]) -> Iterator[Range]:
    """Neighbours made one."""
    held: Range | None = None
    for first, count in ranges:
        if held is not None and held[0] + held[1] == first:
            held = (held[0], held[1] + count)
            continue
        if held is not None:
            yield held
        held = (first, count)
    if held is not None:
        yield held


def problem_of(shape: Sequence[int], dimensions: int, placements: Sequence[Any]) -> str | None:
    """Why a tensor of this shape cannot be placed so on a mesh of so many dimensions; None when it can."""
    if len(placements) != dimensions:
        return f"{len(placements)} placements for a mesh of {dimensions} dimensions"
    for placement in placements:
        if isinstance(placement, (Shard, _StridedShard)):
            if not 0 <= placement.dim < len(shape):
                return f"{placement} of a tensor of {len(shape)} dimensions"
        elif not isinstance(placement, Replicate):
            return f"{placement!r} is no placement of a stored tensor"
    return None


def counted_from_front(placements: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """The same placements, dimensions counted from the end made those from the front."""
    def front(placement: Any) -> Any:
        if not isinstance(placement, (Shard, _StridedShard)) or placement.dim >= 0:
            return placement
        dim = placement.dim + rank
        return _StridedShard(dim, split_factor=placement.split_factor) if isinstance(placement, _StridedShard) else Shard(dim)
    return tuple(map(front, placements))
