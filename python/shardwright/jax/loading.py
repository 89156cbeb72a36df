"""From files to jax.Arrays, each device's piece to where it stays."""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

import jax
import numpy as np

from ..checkpoint import Checkpoint, Tensor
from ..checkpoint import open as open_checkpoint
from ..dtypes import Array, is_float
from ..memory import DEFAULT_MEMORY, TURN_BYTES, Arena, empty, in_turns
from ..progress import Progress
from ..wishes import refuse, wished
from .pieces import Bounds, Pieces, extents, misfit, start

Wish = Union[jax.sharding.Sharding, jax.ShapeDtypeStruct]
"""Where a tensor goes; with a ShapeDtypeStruct, also which shape it must have, and the floating type that it is converted to."""

Shardings = Union[Wish, Mapping[str, Wish], Callable[[Tensor], "Wish | None"]]
"""One for all tensors; or by name, for those alone; or a function of the lazy tensor (.name, .shape, .dtype), None to leave it out."""


def load(path: str | os.PathLike[str] | Checkpoint, shardings: Shardings, *, isolate: bool = False, memory: int | str = DEFAULT_MEMORY,
         threads: int = 0, progress: Progress = None) -> dict[str, jax.Array]:
    """Reads tensors straight into sharded arrays: each process what its devices hold, each distinct box once, and no tensor as a whole.

    path: what shardwright.open() takes, or what it returned.
    shardings: see shardwright.jax.Shardings.
    isolate: as in shardwright.open(). memory: bytes that may be used beside the arrays. threads: workers; 0: as many as pay.
    progress: see shardwright.Progress.

    Returns arrays by name, in the checkpoint's order or that of the mapping. On the CPU devices hold the very memory that was read into,
    replicas one for all, and names that are tied the same; it is freed with those arrays. On other devices values pass through
    host memory a box at a time. Packed types (float4) have one byte an element, and are read as a whole for each box.
    Everything is checked before the first byte is read. Raises TensorNotFoundError, InvalidArgumentError (all that does not fit, in one:
    dimensions that their axes do not divide, other shapes, types that this JAX would change), and what open() raises.
    """
    if not isinstance(path, Checkpoint):
        with open_checkpoint(path, isolate=isolate) as checkpoint:
            return load(checkpoint, shardings, memory=memory, threads=threads, progress=progress)
    wanted = [_want(tensor, wish) for tensor, wish in wished(path, shardings)]
    refuse(path, ((want.tensor, _problem(want)) for want in wanted))
    targets = _targets(path, wanted)
    _allocate([target for target in targets.values() if target.taken_over])
    for turn in _turns(list(targets.values())):
        path._fill([(target.tensor, start(bounds), target.memory(bounds)) for target, bounds in turn], memory, threads, progress)
        for target in dict.fromkeys(target for target, _ in turn):
            target.hand_over()
    return {want.tensor.name: targets[want.key(path)].array() for want in wanted}


@dataclass(frozen=True)
class _Wanted:
    tensor: Tensor
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    sharding: Any

    def key(self, checkpoint: Checkpoint) -> tuple[int, str, Any]:
        """Equal for tied names that are laid out alike."""
        return checkpoint._core.same_as(self.tensor._id), self.dtype.name, self.sharding


def _want(tensor: Tensor, wish: Any) -> _Wanted:
    if isinstance(wish, jax.ShapeDtypeStruct):
        return _Wanted(tensor, np.dtype(wish.dtype), tuple(wish.shape), wish.sharding)
    return _Wanted(tensor, tensor.dtype, tensor.shape, wish)


def _problem(want: _Wanted) -> str | None:
    have, sharding = want.tensor.dtype, want.sharding
    if not isinstance(sharding, jax.sharding.Sharding):
        hint = "; a PartitionSpec needs a mesh: NamedSharding(mesh, spec)" if isinstance(sharding, jax.sharding.PartitionSpec) else ""
        return f"{type(sharding).__name__} is no sharding{hint}"
    if want.shape != want.tensor.shape:
        return f"{list(want.tensor.shape)} in the checkpoint, {list(want.shape)} wanted"
    if have != want.dtype and not (is_float(have) and is_float(want.dtype)):
        return f"{have.name} in the checkpoint, {want.dtype.name} wanted"
    try:
        kept = jax.dtypes.canonicalize_dtype(want.dtype) == want.dtype
    except (TypeError, ValueError):
        return f"JAX has no type {want.dtype.name}"
    if not kept:
        return f"JAX would make {jax.dtypes.canonicalize_dtype(want.dtype).name} of {want.dtype.name}: set jax_enable_x64, or leave it out"
    return misfit(want.shape, sharding)


class _Target:
    """A tensor on its way, under all its names."""

    def __init__(self, want: _Wanted, pieces: Pieces):
        self.tensor, self.dtype, self.pieces = want.tensor, want.dtype, pieces
        self.taken_over = all(device.platform == "cpu" for device in want.sharding.addressable_devices)
        self.filled: dict[Bounds, Array] = {}
        self.parts: dict[Any, jax.Array] = {}

    def nbytes(self, bounds: Bounds) -> int:
        return math.prod(extents(bounds)) * self.dtype.itemsize

    def memory(self, bounds: Bounds) -> Array:
        """Where one box is read to."""
        if bounds not in self.filled:
            self.filled[bounds] = empty(extents(bounds), self.dtype)
        return self.filled[bounds]

    def hand_over(self) -> None:
        """What was read so far, to devices that do not take host memory over."""
        if self.taken_over:
            return
        for bounds, array in self.filled.items():
            self.parts.update(self.pieces.put(bounds, array))
        jax.block_until_ready(list(self.parts.values()))
        self.filled.clear()

    def array(self) -> jax.Array:
        return self.pieces.array(self.filled, self.dtype) if self.taken_over else self.pieces.join(self.parts)


def _targets(checkpoint: Checkpoint, wanted: list[_Wanted]) -> dict[Any, _Target]:
    targets: dict[Any, _Target] = {}
    alike: dict[Any, Pieces] = {}  # many tensors of a model have one shape and one sharding
    for want in wanted:
        key = want.key(checkpoint)
        if key not in targets:
            laid = want.shape, want.sharding
            if laid not in alike:
                alike[laid] = Pieces(*laid)
            targets[key] = _Target(want, alike[laid])
    return targets


def _allocate(targets: list[_Target]) -> None:
    """Memory for boxes that devices take over: those of one device side by side, so that no tensor is whole anywhere."""
    boxes: dict[Any, list[tuple[_Target, Bounds]]] = {}
    for target in targets:
        for device, bounds in target.pieces.holders():
            boxes.setdefault(device, []).append((target, bounds))
    for held in boxes.values():
        arena = Arena()
        for target, bounds in held:
            target.filled[bounds] = arena.empty(extents(bounds), target.dtype)


def _turns(targets: list[_Target]) -> Iterator[list[tuple[_Target, Bounds]]]:
    """Boxes that are read together: all of those that devices take over, and of others what host memory is spent on at once."""
    taken_over = [(target, bounds) for target in targets if target.taken_over for bounds in target.pieces.boxes]
    if taken_over:
        yield taken_over
    others = [(target, bounds) for target in targets if not target.taken_over for bounds in target.pieces.boxes]
    yield from in_turns(others, lambda box: box[0].nbytes(box[1]), TURN_BYTES)
