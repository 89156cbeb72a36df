"""Which box of a tensor each process of a device mesh holds."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from torch.distributed.tensor import Replicate, Shard

from ..errors import InvalidArgumentError, UnsupportedError
from .parts import counted_from_front, part_of

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Start and extents."""


def checked(placements: Sequence[Any], shape: Sequence[int], mesh: Any, tensor: str | None = None) -> tuple[Any, ...]:
    """The placements, dimensions counted from the front. Errors: UnsupportedError for what is neither Shard nor Replicate."""
    if len(placements) != mesh.ndim:
        raise InvalidArgumentError("a mesh needs one placement per axis", tensor=tensor, found=str(tuple(placements)), expected=f"{mesh.ndim}")
    front = counted_from_front(placements, len(shape))
    for placement, counted in zip(placements, front):
        if type(counted) not in (Shard, Replicate):
            raise UnsupportedError("only tensors that are split or replicated have boxes", tensor=tensor, found=str(placement),
                                   hint="redistribute() partial sums first")
        if type(counted) is Shard and not 0 <= counted.dim < len(shape):
            raise InvalidArgumentError("a placement splits a dimension that the tensor does not have", tensor=tensor, found=str(placement),
                                       expected=f"one of {len(shape)} dimensions")
    return front


def box_at(shape: Sequence[int], mesh_shape: Sequence[int], coordinate: Sequence[int], placements: Sequence[Any]) -> Box:
    """Of the process at a coordinate."""
    held = [ranges[0] if ranges else (0, 0) for ranges in part_of(shape, mesh_shape, coordinate, placements).ranges]
    return tuple(first for first, _ in held), tuple(count for _, count in held)


def box_of(shape: Sequence[int], mesh: Any, placements: Sequence[Any], tensor: str | None = None) -> Box:
    """Of this process; empty where it is not in the mesh."""
    placements = checked(placements, shape, mesh, tensor)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,) * len(shape), (0,) * len(shape)
    return box_at(shape, tuple(mesh.shape), tuple(coordinate), placements)


def boxes_of(shape: Sequence[int], mesh: Any, placements: Sequence[Any]) -> Iterator[tuple[int, Box]]:
    """Of every process of the mesh: its number in the job, and its box."""
    for coordinate in itertools.product(*map(range, mesh.shape)):
        yield int(mesh.mesh[coordinate]), box_at(shape, tuple(mesh.shape), coordinate, placements)


def check_divisible(shape: Sequence[int], mesh: Any, placements: Sequence[Any]) -> None:
    """InvalidArgumentError naming dimension and sizes."""
    parts = [1] * len(shape)
    for size, placement in zip(mesh.shape, placements):
        if hasattr(placement, "dim"):
            parts[placement.dim] *= size
    for dimension, (extent, count) in enumerate(zip(shape, parts)):
        if extent % count:
            raise InvalidArgumentError(f"dimension {dimension} of size {extent} is not divisible by {count} devices", found=f"shape {list(shape)}",
                                       expected=f"a multiple of {count}", hint="uneven=True gives the last ones shorter or empty parts, as torch does")
