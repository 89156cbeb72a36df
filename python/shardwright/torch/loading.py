"""From files to DTensors, each rank its own part."""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Placement

from ..checkpoint import Checkpoint, Tensor
from ..checkpoint import open as open_checkpoint
from ..dtypes import Array
from ..errors import InvalidArgumentError
from ..memory import DEFAULT_MEMORY, TURN_BYTES, Arena, in_turns
from ..progress import Progress
from ..wishes import refuse, wished
from .parts import Part, counted_from_front, part_of, problem_of

Placed = Sequence[Placement]
"""One placement for each dimension of the mesh."""

Placements = Union[Placed, Mapping[str, Placed], Callable[[Tensor], "Placed | None"]]
"""For all tensors; or by name, for those alone; or a function of the lazy tensor (.name, .shape, .dtype), None to leave it out."""


def load(path: str | os.PathLike[str] | Checkpoint, placements: Placements, device_mesh: Any, *, local: bool = False, isolate: bool = False,
         memory: int | str = DEFAULT_MEMORY, threads: int = 0, progress: Progress = None) -> dict[str, Any]:
    """Reads tensors straight into DTensors: each process the part that its rank of the mesh holds, and no tensor as a whole.

    path: what shardwright.open() takes, or what it returned.
    placements: see shardwright.torch.Placements; shardwright.torch.tensor_parallel() makes them of a plan.
    device_mesh: a torch.distributed DeviceMesh. Nothing is sent between its processes.
    local: return plain tensors of the local parts instead.
    isolate: as in shardwright.open(). memory: bytes that may be used beside the tensors. threads: workers; 0: as many as pay.
    progress: see shardwright.Progress.

    Returns tensors by name, in the checkpoint's order or that of the mapping, on the mesh's device. Names that are tied, and placed alike, share one.
    Dimensions that do not divide are cut as torch cuts them. Everything is checked before the first byte is read. Raises TensorNotFoundError,
    InvalidArgumentError (all that does not fit, in one), and what open() raises.
    """
    if not isinstance(path, Checkpoint):
        with open_checkpoint(path, isolate=isolate) as checkpoint:
            return load(checkpoint, placements, device_mesh, local=local, memory=memory, threads=threads, progress=progress)
    coordinate = device_mesh.get_coordinate()
    if coordinate is None:
        raise InvalidArgumentError("this process is not part of the mesh", found=str(device_mesh))
    wanted = [(tensor, counted_from_front(placed, tensor.ndim)) for tensor, placed in wished(path, placements)]
    refuse(path, ((tensor, _problem(tensor, placed, device_mesh)) for tensor, placed in wanted))
    targets: dict[Any, _Target] = {}
    arena = Arena()
    for tensor, placed in wanted:
        key = path._core.same_as(tensor._id), placed
        if key not in targets:
            targets[key] = _Target(tensor, part_of(tensor.shape, tuple(device_mesh.shape), coordinate, placed), arena)
    at_once = device_mesh.device_type == "cpu"  # values stay where they are read
    for turn in [list(targets.values())] if at_once else in_turns(targets.values(), lambda target: target.nbytes, TURN_BYTES):
        path.read([box for target in turn for box in target.boxes()], memory=memory, threads=threads, progress=progress)
        for target in turn:
            target.move(device_mesh.device_type)
    made = {key: target.value if local else _global(target, device_mesh, key[1]) for key, target in targets.items()}
    return {tensor.name: made[path._core.same_as(tensor._id), placed] for tensor, placed in wanted}


def _problem(tensor: Tensor, placed: tuple[Any, ...], mesh: Any) -> str | None:
    problem = problem_of(tensor.shape, mesh.ndim, placed)
    if problem is None and _torch_dtype(tensor) is None:
        problem = f"torch has no type {tensor.dtype.name}"
    return problem


def _torch_dtype(tensor: Tensor) -> Any:
    found = getattr(torch, tensor.dtype.name, None)
    return found if isinstance(found, torch.dtype) and not tensor._packed else None


class _Target:
    """A tensor's local part on its way."""

    def __init__(self, tensor: Tensor, part: Part, arena: Arena):
        self.tensor, self.part, self._arena = tensor, part, arena
        self.value: Any = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.part.shape) * self.tensor.dtype.itemsize

    def boxes(self) -> Iterator[tuple[str, tuple[int, ...], Array]]:
        dtype = _torch_dtype(self.tensor)
        if self.nbytes == 0:
            self.value = torch.empty(self.part.shape, dtype=dtype)
            return
        raw = self._arena.empty((self.nbytes,), np.dtype(np.uint8))
        self.value = torch.from_numpy(raw).view(dtype).view(self.part.shape)
        view = raw.view(self.tensor.dtype).reshape(self.part.shape)
        for start, where in self.part.boxes():
            yield self.tensor.name, start, view[where] if where else view

    def move(self, device_type: str) -> None:
        if device_type != "cpu":
            self.value = self.value.to(device_type)


def _global(target: _Target, mesh: Any, placed: tuple[Any, ...]) -> Any:
    shape = torch.Size(target.tensor.shape)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(target.value, mesh, placed, run_check=False, shape=shape, stride=stride)
