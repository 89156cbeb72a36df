"""PyTorch's DTensors from one layout to another: by the fewest bytes, and never whole in one place."""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .. import _core
from ..arrays import _torch_view
from ..dtypes import address_of
from ..errors import InvalidArgumentError
from ..memory import DEFAULT_MEMORY, size
from ..ranks import Ranks, required_ranks
from .parts import Part, counted_from_front, part_of, problem_of


def relayout(tensor: Any, placements: Sequence[Any], device_mesh: Any = None, *, uneven: bool = False, memory: int | str = DEFAULT_MEMORY,
             ranks: Ranks | None = None) -> Any:
    """The same values under other placements, or on another mesh.

    tensor: a DTensor, split or replicated. device_mesh: None: the one it has. A tensor that is laid out so already is returned as it is.
    uneven: dimensions that do not divide are cut as torch cuts them, the last parts shorter or empty; else InvalidArgumentError.
    memory: bytes that may be under way between processes at a time. ranks: None: those of torch.distributed.

    Collective over all processes of the job. Every box comes from the nearest process that holds it, in rounds; nothing is gathered. What this
    process holds of an accelerator's tensor, and gets, passes through host memory as a whole. No gradient flows through. While torch compiles, it
    becomes tensor.redistribute(). Raises InvalidArgumentError also for partial sums and for placements that do not go with tensor and mesh;
    UnsupportedError when nothing connects the processes.
    """
    if not isinstance(tensor, DTensor):
        raise InvalidArgumentError(f"{type(tensor).__name__} has no layout", expected="a DTensor", hint="distribute_tensor() lays out plain tensors")
    mesh = tensor.device_mesh if device_mesh is None else device_mesh
    wanted = _checked(placements, tuple(tensor.shape), mesh, uneven)
    have = _checked(tensor.placements, tuple(tensor.shape), tensor.device_mesh, True)
    if mesh == tensor.device_mesh and wanted == have:
        return tensor
    if torch.compiler.is_compiling():
        return tensor.redistribute(mesh, wanted)
    source, target = _Side(tensor.shape, tensor.device_mesh, have), _Side(tensor.shape, mesh, wanted)
    source.local = tensor.detach().to_local().cpu()
    target.local = torch.empty(target.here.shape if target.here else (0,) * tensor.ndim, dtype=tensor.dtype)
    ranks = required_ranks("the tensor") if ranks is None else ranks
    _core.relayout([("tensor", tensor.element_size(), source.shards, target.shards)], lambda _, shard: source.memory(shard),
                   lambda _, shard: target.memory(shard), lambda _: None, size(memory, "memory"), ranks._core)
    return _dtensor(target.local, mesh, wanted, tensor)


def distribute_tensor(tensor: Any, placements: Sequence[Any], device_mesh: Any = None, *, uneven: bool = False) -> Any:
    """A tensor laid out over a mesh: a DTensor as by relayout(); of a plain tensor, which every process has whole, each keeps its part.
    Nothing is sent for that. uneven, errors: as relayout() has them; a plain tensor needs device_mesh."""
    if isinstance(tensor, DTensor):
        return relayout(tensor, placements, device_mesh, uneven=uneven)
    if device_mesh is None:
        raise InvalidArgumentError("a plain tensor needs a mesh to be laid out over")
    tensor = torch.as_tensor(tensor)
    wanted = _checked(placements, tuple(tensor.shape), device_mesh, uneven)
    side = _Side(tensor.shape, device_mesh, wanted)
    side.local = torch.empty(side.here.shape if side.here else (0,) * tensor.ndim, dtype=tensor.dtype)
    for (start, extent), part in side.boxes_here():
        side.local[part] = tensor.detach()[tuple(slice(a, a + n) for a, n in zip(start, extent))]
    return _dtensor(side.local, device_mesh, wanted, tensor)


def distribute_variable(value: Any, placements: Sequence[Any], device_mesh: Any = None, *, uneven: bool = False) -> Any:
    """A parameter of this layout: distribute_tensor() of the value, as torch.nn.Parameter. It wants gradients if its type can have them, unless
    the value is a parameter that does not."""
    laid = distribute_tensor(value, placements, device_mesh, uneven=uneven).detach()
    gradients = value.requires_grad if isinstance(value, torch.nn.Parameter) else laid.is_floating_point() or laid.is_complex()
    return torch.nn.Parameter(laid, requires_grad=gradients)


def _checked(placements: Sequence[Any], shape: tuple[int, ...], mesh: Any, uneven: bool) -> tuple[Any, ...]:
    """The placements, dimensions counted from the front."""
    front = counted_from_front(placements, len(shape))
    if problem := problem_of(shape, mesh.ndim, front):
        raise InvalidArgumentError(problem, found=str(tuple(placements)))
    for dimension, extent in enumerate(shape):
        count = math.prod(parts for parts, placement in zip(mesh.shape, front) if getattr(placement, "dim", None) == dimension)
        if extent % count and not uneven:
            raise InvalidArgumentError(f"dimension {dimension} of size {extent} is not divisible by {count} devices", found=f"shape {list(shape)}",
                                       expected=f"a multiple of {count}", hint="uneven=True gives the last ones shorter or empty parts, as torch does")
    return front


Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Start and extents."""


class _Side:
    """A tensor under one layout: the boxes of every process, and this one's memory. shards: (start, extents, process, device)."""

    def __init__(self, shape: Sequence[int], mesh: Any, placements: tuple[Any, ...]):
        self.shards: list[tuple[tuple[int, ...], tuple[int, ...], int, int]] = []
        self.local: Any = None
        self.here: Part | None = None
        self._slices: dict[int, tuple[slice, ...]] = {}
        me = torch.distributed.get_rank()
        for coordinate in itertools.product(*map(range, mesh.shape)):
            rank, part = int(mesh.mesh[coordinate]), part_of(tuple(shape), tuple(mesh.shape), coordinate, placements)
            if rank == me:
                self.here = part
            for start, within in part.boxes():
                if rank == me:
                    self._slices[len(self.shards)] = within
                self.shards.append((start, tuple(one.stop - one.start for one in within), rank, rank))

    def boxes_here(self) -> Iterator[tuple[Box, tuple[slice, ...]]]:
        for shard, within in self._slices.items():
            start, extent, _, _ = self.shards[shard]
            yield (start, extent), within

    def memory(self, shard: int) -> tuple[int, list[int]]:
        view = _torch_view(self.local)[(*self._slices[shard], ...)]  # the ellipsis: of a scalar, too, a view and no copy
        return address_of(view), [stride // view.itemsize for stride in view.strides]


def _dtensor(local: Any, mesh: Any, placements: tuple[Any, ...], like: Any) -> Any:
    strides = torch.empty(tuple(like.shape), device="meta").stride()
    made = DTensor.from_local(local.to(mesh.device_type), mesh, placements, run_check=False, shape=like.shape, stride=strides)
    return made.requires_grad_(like.requires_grad) if like.requires_grad else made
