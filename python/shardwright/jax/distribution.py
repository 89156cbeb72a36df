"""Arrays of JAX from one sharding to another: by the fewest bytes, and never whole in one place."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from .. import _core
from ..dtypes import Array, address_of
from ..errors import InvalidArgumentError
from ..memory import DEFAULT_MEMORY, empty, size
from ..ranks import Ranks, required_ranks
from .pieces import Bounds, bounds_of, check_divisible, extents, start


def relayout(array: Any, layout: Any, *, donate: bool = False, memory: int | str = DEFAULT_MEMORY, ranks: Ranks | None = None) -> Any:
    """The same values under another sharding, on the same devices or others.

    array: a jax.Array, or a tree of them; layout: a jax.sharding.Sharding, a PartitionSpec over the mesh that the array has, or a tree of
        these. An array that is laid out so already is returned as it is.
    donate: give up each array as soon as its new one is complete, so that a tree needs the room of one array more, not of all; one that
        stands in the tree several times when all are.
    memory: bytes that may be under way between processes at a time. ranks: the processes that have the devices; None: those of the job.

    On CPU devices every box is copied from the nearest device that holds it, and between processes in rounds; no array is gathered. On
    other devices JAX moves it. Within a traced function it becomes a sharding constraint. Raises InvalidArgumentError for a dimension that
    does not divide by its axes, traced or not, and for what is no layout of the array; UnsupportedError when it lies on several processes that
    nothing connects.
    """
    leaves, tree = jax.tree.flatten(array)
    layouts = tree.flatten_up_to(layout) if not _is_layout(layout) else [layout] * len(leaves)
    pairs = [(leaf, _sharding_of(wanted, leaf)) for leaf, wanted in zip(leaves, layouts)]
    for leaf, sharding in pairs:
        check_divisible(np.shape(leaf), sharding)
    moved = _Move(size(memory, "memory"), donate, ranks)
    return jax.tree.unflatten(tree, moved.all(pairs))


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """A value laid out by a sharding: a jax.Array as by relayout(), anything else that is an array placed shard by shard, in the type that JAX
    makes of its own. Of several processes each gives the whole value. Within a traced function it becomes a sharding constraint. Raises
    InvalidArgumentError as relayout() does, and for a PartitionSpec of what has no mesh."""
    if isinstance(tensor, jax.Array):
        return relayout(tensor, layout)
    if not isinstance(layout, Sharding):
        raise InvalidArgumentError("a value without a sharding needs one with a mesh", found=repr(layout), expected="a jax.sharding.Sharding")
    value = np.asarray(tensor)
    value = value.astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False)
    check_divisible(value.shape, layout)
    with jax.ensure_compile_time_eval():
        if layout.is_fully_addressable:
            return jax.device_put(value, layout)
        return jax.make_array_from_callback(value.shape, layout, lambda index: value[index])


def distribute_variable(value: Any, layout: Any) -> Any:
    """The value that a variable of this layout begins with: distribute_tensor() of it. JAX has no variables of its own."""
    return distribute_tensor(value, layout)


def _is_layout(layout: Any) -> bool:
    return isinstance(layout, (Sharding, PartitionSpec))


def _sharding_of(layout: Any, array: Any) -> Sharding:
    if isinstance(layout, Sharding):
        return layout
    mesh = getattr(getattr(array, "sharding", None), "mesh", None) if not isinstance(array, jax.core.Tracer) else None
    if isinstance(layout, PartitionSpec) and mesh is not None:
        return NamedSharding(mesh, layout)
    hint = "NamedSharding(mesh, spec) says over which devices" if isinstance(layout, PartitionSpec) else None
    raise InvalidArgumentError("this is no layout of the array", found=repr(layout), expected="a jax.sharding.Sharding", hint=hint)


class _Move:
    """One call of relayout(): everything that the engine has to move, moved at once, in order."""

    def __init__(self, memory: int, donate: bool, ranks: Ranks | None):
        self._memory, self._donate, self._ranks = memory, donate, ranks

    def all(self, pairs: Sequence[tuple[Any, Sharding]]) -> list[Any]:
        results: list[Any] = [None] * len(pairs)
        self._uses = Counter(id(array) for array, _ in pairs)
        engine: list[_Array] = []
        for number, (array, sharding) in enumerate(pairs):
            if isinstance(array, jax.core.Tracer):
                results[number] = _constrained(array, sharding)
            elif not isinstance(array, jax.Array):
                results[number] = distribute_tensor(array, sharding)
            elif array.sharding.is_equivalent_to(sharding, array.ndim):
                results[number] = array
            elif _for_engine(array.sharding, sharding) and isinstance(array.dtype, np.dtype):
                engine.append(_Array(number, array, sharding))
            else:
                results[number] = self._by_jax(array, sharding)
        if engine:
            self._by_engine(engine, results)
        kept = {id(result) for result in results}
        for array in {id(array): array for array, _ in pairs}.values() if self._donate else ():
            if self._uses[id(array)] > 1 and id(array) not in kept and isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer):
                array.delete()
        return results

    def _gives_up(self, array: Any) -> bool:
        return self._donate and self._uses[id(array)] == 1

    def _by_jax(self, array: Any, sharding: Sharding) -> Any:
        with jax.ensure_compile_time_eval():
            if array.is_fully_addressable and sharding.is_fully_addressable:
                return jax.device_put(array, sharding, donate=self._gives_up(array))
            return jax.jit(lambda value: value, out_shardings=sharding, donate_argnums=(0,) if self._gives_up(array) else ())(array)

    def _by_engine(self, arrays: list[_Array], results: list[Any]) -> None:
        # What lies on several processes is moved by all of them; what lies on one, by that one.
        spread, alone = [array for array in arrays if array.spread], [array for array in arrays if not array.spread]
        if spread:
            ranks = required_ranks("the array") if self._ranks is None else self._ranks
            if ranks.index != jax.process_index():
                raise InvalidArgumentError("the ranks count processes in another way than JAX", found=repr(ranks), expected=f"{jax.process_index()}")
            self._together(spread, results, ranks._core)
        here = [array for array in alone if array.is_here]
        if here:
            self._together(here, results, None)
        for array in alone:
            if not array.is_here:
                results[array.number] = array.finish(self._gives_up(array.source_array))

    def _together(self, arrays: list[_Array], results: list[Any], ranks: Any) -> None:
        def finished(number: int) -> None:
            array = arrays[number]
            results[array.number] = array.finish(self._gives_up(array.source_array))
        with jax.ensure_compile_time_eval():
            _core.relayout([array.plan() for array in arrays], lambda n, shard: arrays[n].source(shard), lambda n, shard: arrays[n].target(shard),
                           finished, self._memory, ranks)


def _constrained(array: Any, sharding: Sharding) -> Any:
    explicit = isinstance(sharding, NamedSharding) and any(kind == jax.sharding.AxisType.Explicit for kind in sharding.mesh.axis_types)
    return jax.sharding.reshard(array, sharding) if explicit else jax.lax.with_sharding_constraint(array, sharding)


def _for_engine(*shardings: Sharding) -> bool:
    """In the memory that CPU devices compute in."""
    return all(device.platform == "cpu" and sharding.memory_kind in (None, device.default_memory().kind)
               for sharding in shardings for device in sharding.device_set)


class _Array:
    """An array on its way. Devices of one process that want the same box share its memory, as JAX on the CPU allows."""

    def __init__(self, number: int, array: Any, sharding: Sharding):
        self.number, self.source_array, self._sharding = number, array, sharding
        self._shape, self._dtype = tuple(array.shape), np.dtype(array.dtype)
        here = jax.process_index()
        processes = {device.process_index for side in (array.sharding, sharding) for device in side.device_set}
        self.spread, self.is_here = len(processes) > 1, here in processes  # the same on every process, but the latter
        self._from = list(bounds_of(array.sharding, self._shape).items())
        shards = {shard.device: shard for shard in array.addressable_shards}
        self._sources = {i: shards[device] for i, (device, _) in enumerate(self._from) if device.process_index == here}
        self._where = bounds_of(sharding, self._shape)
        wanted: dict[tuple[int, Bounds], Any] = {}
        for device, bounds in self._where.items():
            wanted.setdefault((device.process_index if self.spread else 0, bounds), device)
        self._to = [(device, bounds) for (_, bounds), device in wanted.items()]
        self._here = here
        self._views: list[Array] = []
        self._targets: dict[Bounds, Array] = {}

    def plan(self) -> tuple[Any, ...]:
        def shards(side: list[tuple[Any, Bounds]]) -> list[tuple[Any, ...]]:
            return [(start(bounds), extents(bounds), device.process_index if self.spread else 0, device.id) for device, bounds in side]
        return f"array {self.number}", self._dtype.itemsize, shards(self._from), shards(self._to)

    def source(self, shard: int) -> tuple[int, list[int]]:
        view = np.asarray(self._sources[shard].data)
        self._views.append(view)
        return address_of(view), [stride // self._dtype.itemsize for stride in view.strides]

    def target(self, shard: int) -> tuple[int, list[int]]:
        _, bounds = self._to[shard]
        array = self._targets[bounds] = empty(extents(bounds), self._dtype)
        return address_of(array), []

    def finish(self, donate: bool) -> Any:
        self._views.clear()
        self._sources.clear()
        if donate:
            self.source_array.delete()
        self.source_array = None
        parts = [jax.device_put(self._targets[bounds], device) for device, bounds in self._where.items() if device.process_index == self._here]
        self._targets.clear()
        if not parts:
            return jax.make_array_from_single_device_arrays(self._shape, self._sharding, [], dtype=self._dtype)
        return jax.make_array_from_single_device_arrays(self._shape, self._sharding, parts)


