"""PyTorch's DTensors from one layout to another: by the fewest bytes, and never whole in one place."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .. import _core
from ..arrays import _torch_view
from ..dtypes import address_of
from ..errors import InvalidArgumentError
from ..memory import DEFAULT_MEMORY, size
from ..ranks import Ranks, required_ranks
from .placements import Box, box_of, boxes_of, check_divisible, checked


def relayout(tensor: Any, placements: Sequence[Any], device_mesh: Any = None, *, uneven: bool = False, memory: int | str = DEFAULT_MEMORY,
             ranks: Ranks | None = None) -> Any:
    """The same values under other placements, or on another mesh.

    tensor: a DTensor, split or replicated. device_mesh: None: the one it has. A tensor that is laid out so already is returned as it is.
    uneven: dimensions that do not divide are cut as torch cuts them, the last parts shorter or empty; else InvalidArgumentError.
    memory: bytes that may be under way between processes at a time. ranks: None: those of torch.distributed.

    Collective over all processes of the job. Every box comes from the nearest process that holds it, in rounds; nothing is gathered. No
    gradient flows through. While torch compiles, it becomes tensor.redistribute().
    """
    if not isinstance(tensor, DTensor):
        raise InvalidArgumentError(f"{type(tensor).__name__} has no layout", expected="a DTensor", hint="distribute_tensor() lays out plain tensors")
    mesh = tensor.device_mesh if device_mesh is None else device_mesh
    shape = tuple(tensor.shape)
    wanted = checked(placements, shape, mesh)
    if not uneven:
        check_divisible(shape, mesh, wanted)
    if mesh == tensor.device_mesh and wanted == tuple(tensor.placements):
        return tensor
    if torch.compiler.is_compiling():
        return tensor.redistribute(mesh, wanted)
    return _moved(tensor, mesh, wanted, size(memory, "memory"), ranks)


def _moved(tensor: Any, mesh: Any, wanted: tuple[Any, ...], memory: int, ranks: Ranks | None) -> Any:
    shape = tuple(tensor.shape)
    have = list(boxes_of(shape, tensor.device_mesh, checked(tensor.placements, shape, tensor.device_mesh)))
    want = list(boxes_of(shape, mesh, wanted))
    ranks = required_ranks("the tensor") if ranks is None else ranks
    source = tensor.detach().to_local().cpu()
    _, extent = box_of(shape, mesh, wanted)
    target = torch.empty(extent, dtype=tensor.dtype)

    def shards(side: list[tuple[int, Box]]) -> list[tuple[Any, ...]]:
        return [(start, extent, rank, rank) for rank, (start, extent) in side]

    def memory_of(local: Any) -> tuple[int, list[int]]:
        view = _torch_view(local)
        return address_of(view), [stride // view.itemsize for stride in view.strides]
    _core.relayout([("tensor", tensor.element_size(), shards(have), shards(want))], lambda *_: memory_of(source), lambda *_: memory_of(target),
                   lambda _: None, memory, ranks._core)
    return _dtensor(target, mesh, wanted, tensor)


def _dtensor(local: Any, mesh: Any, placements: tuple[Any, ...], like: Any) -> Any:
    strides = torch.empty(tuple(like.shape), device="meta").stride()
    made = DTensor.from_local(local.to(mesh.device_type), mesh, placements, run_check=False, shape=like.shape, stride=strides)
    return made.requires_grad_(like.requires_grad) if like.requires_grad else made


def distribute_tensor(tensor: Any, placements: Sequence[Any], device_mesh: Any = None, *, uneven: bool = False) -> Any:
    """A tensor laid out over a mesh: a DTensor as by relayout(); of a plain tensor, which every process has whole, each keeps its part.
    Nothing is sent for that."""
    if isinstance(tensor, DTensor):
        return relayout(tensor, placements, device_mesh, uneven=uneven)
    if device_mesh is None:
        raise InvalidArgumentError("a plain tensor needs a mesh to be laid out over")
    tensor = torch.as_tensor(tensor)
    wanted = checked(placements, tuple(tensor.shape), device_mesh)
    if not uneven:
        check_divisible(tuple(tensor.shape), device_mesh, wanted)
    start, extent = box_of(tuple(tensor.shape), device_mesh, wanted)
    local = tensor.detach()[tuple(slice(a, a + n) for a, n in zip(start, extent))].clone(memory_format=torch.contiguous_format)
    return _dtensor(local, device_mesh, wanted, tensor)


def distribute_variable(value: Any, placements: Sequence[Any], device_mesh: Any = None, *, uneven: bool = False) -> Any:
    """A parameter of this layout: distribute_tensor() of the value, as torch.nn.Parameter. It wants gradients if its type can have them, unless
    the value is a parameter that does not."""
    laid = distribute_tensor(value, placements, device_mesh, uneven=uneven).detach()
    gradients = value.requires_grad if isinstance(value, torch.nn.Parameter) else laid.is_floating_point() or laid.is_complex()
    return torch.nn.Parameter(laid, requires_grad=gradients)
