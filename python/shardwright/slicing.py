"""NumPy's basic indexing on tensors that are not in memory: from an index to the boxes that must be read for it."""
from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .dtypes import Array

# Gaps up to this are read and dropped by the library's file reads, so that stepping over less saves nothing.
READ_GAP_BYTES = 64 << 10
# Memory for boxes that are read whole and stepped through afterwards.
SCRATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Range:
    """Elements start, start + step, ... of one dimension, `count` of them; all lie within it. step is not 0."""

    start: int
    step: int
    count: int


@dataclass(frozen=True)
class Selection:
    """ranges: one per dimension of the tensor. shape: of the result, where dimensions were dropped and added. scalar: NumPy would
    give a scalar instead of an array."""

    ranges: tuple[Range, ...]
    shape: tuple[int, ...]
    scalar: bool


def select(index: Any, shape: tuple[int, ...]) -> Selection:
    """What `index` (integers, slices, Ellipsis, None, or a tuple of them) takes of an array of this shape.

    IndexError as NumPy raises it, and for arrays of indices and masks, which need the whole tensor: load it first.
    """
    items = index if isinstance(index, tuple) else (index,)
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    ellipses = sum(1 for item in items if item is Ellipsis)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > len(shape):
        raise IndexError(f"too many indices: tensor is {len(shape)}-dimensional, but {used} were indexed")
    if ellipses == 0:
        items = (*items, Ellipsis)
    ranges: list[Range] = []
    result: list[int] = []
    for item in items:
        if item is None:
            result.append(1)
        elif item is Ellipsis:
            left = used - len(ranges)  # dimensions that the items after it take
            for extent in shape[len(ranges):len(shape) - left]:
                ranges.append(Range(0, 1, extent))
                result.append(extent)
        elif isinstance(item, slice):
            bounds = range(*item.indices(shape[len(ranges)]))
            ranges.append(Range(bounds.start, bounds.step, len(bounds)))
            result.append(len(bounds))
        else:
            ranges.append(Range(_integer(item, shape[len(ranges)], len(ranges)), 1, 1))
    scalar = ellipses == 0 and used == len(shape) and not result and all(not isinstance(i, slice) for i in items)
    return Selection(tuple(ranges), tuple(result), scalar)


def _integer(item: Any, extent: int, dimension: int) -> int:
    if isinstance(item, bool) or getattr(item, "shape", ()) != () or getattr(item, "dtype", None) == bool:
        raise IndexError("only integers, slices, '...' and None are valid indices of a lazy tensor; load it for masks and arrays of indices")
    try:
        position = operator.index(item)
    except TypeError:
        raise IndexError(f"only integers, slices, '...' and None are valid indices, not {type(item).__name__}") from None
    if not -extent <= position < extent:
        raise IndexError(f"index {position} is out of bounds for axis {dimension} with size {extent}")
    return position % extent


@dataclass(frozen=True)
class Job:
    """Read the box `ranges` (whose steps are 1) into `into`; or, where steps are not 1, read the box that covers them into scratch
    memory and copy the steps from there."""

    ranges: tuple[Range, ...]
    into: Array

    @property
    def start(self) -> tuple[int, ...]:
        return tuple(r.start for r in self.ranges)

    @property
    def cover(self) -> tuple[int, ...]:
        """Extents of the box from the first to the last element taken."""
        return tuple((r.count - 1) * r.step + 1 for r in self.ranges)

    @property
    def stepped(self) -> bool:
        return any(r.step != 1 for r in self.ranges)

    @property
    def steps(self) -> tuple[slice, ...]:
        """Takes the steps from an array of the covering box."""
        return tuple(slice(None, None, r.step) for r in self.ranges)


def jobs(ranges: tuple[Range, ...], shape: tuple[int, ...], into: Array) -> Iterator[Job]:
    """Boxes to be read for a selection. into: one dimension per range, extents as counted. What lies between steps is read only where
    it is too little for leaving it out to save anything."""
    for d, r in enumerate(ranges):
        if r.step < 0 and r.count > 0:  # from the other end, into a flipped view
            ranges = (*ranges[:d], Range(r.start + (r.count - 1) * r.step, -r.step, r.count), *ranges[d + 1:])
            into = into[(slice(None),) * d + (slice(None, None, -1),)]
    if into.size:
        yield from _cut(tuple(replace(r, step=1) if r.count == 1 else r for r in ranges), shape, into)


def _cut(ranges: tuple[Range, ...], shape: tuple[int, ...], into: Array) -> Iterator[Job]:
    job = Job(ranges, into)
    stepped = next((d for d, r in enumerate(ranges) if r.step != 1), None)
    if stepped is None:
        yield job
        return
    row_bytes, cover_bytes = into.itemsize, into.itemsize
    for extent in shape[stepped + 1:]:
        row_bytes *= extent
    for extent in job.cover:
        cover_bytes *= extent
    if (ranges[stepped].step - 1) * row_bytes > READ_GAP_BYTES:
        for i in range(ranges[stepped].count):
            yield from _cut(*_part(ranges, stepped, i, i + 1, shape, into))
    elif cover_bytes <= SCRATCH_BYTES:
        yield job
    else:
        d = next(d for d, r in enumerate(ranges) if r.count > 1)
        half = ranges[d].count // 2
        yield from _cut(*_part(ranges, d, 0, half, shape, into))
        yield from _cut(*_part(ranges, d, half, ranges[d].count, shape, into))


def _part(ranges: tuple[Range, ...], d: int, first: int, end: int, shape: tuple[int, ...],
          into: Array) -> tuple[tuple[Range, ...], tuple[int, ...], Array]:
    """Elements [first, end) of dimension d of a selection."""
    r = ranges[d]
    step = 1 if end - first == 1 else r.step
    part = Range(r.start + first * r.step, step, end - first)
    return (*ranges[:d], part, *ranges[d + 1:]), shape, into[(slice(None),) * d + (slice(first, end),)]
