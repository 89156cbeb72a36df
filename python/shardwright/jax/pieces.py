"""A jax.Array by its pieces: which boxes this process holds, and the array made of memory that was filled with them."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from ..dtypes import Array
from ..errors import InvalidArgumentError

Bounds = tuple[tuple[int, int], ...]
"""First and last + 1 of each dimension."""


def bounds_at(index: tuple[slice, ...], shape: tuple[int, ...]) -> Bounds:
    """The box of an index as JAX gives it."""
    return tuple((part.start or 0, extent if part.stop is None else part.stop) for part, extent in zip(index, shape))


def start(bounds: Bounds) -> tuple[int, ...]:
    return tuple(a for a, _ in bounds)


def extents(bounds: Bounds) -> tuple[int, ...]:
    return tuple(b - a for a, b in bounds)


def bounds_of(sharding: Sharding, shape: tuple[int, ...]) -> dict[Any, Bounds]:
    """The box of each device, of all processes."""
    return {device: bounds_at(index, shape) for device, index in sharding.devices_indices_map(shape).items()}


class Pieces:
    """The distinct boxes that this process's devices hold of an array. Replicas share one."""

    def __init__(self, shape: tuple[int, ...], sharding: Sharding):
        self.shape, self.sharding = shape, sharding
        indices = sharding.addressable_devices_indices_map(shape)
        self._of: dict[Any, Bounds] = {device: bounds_at(index, shape) for device, index in indices.items()}
        self.boxes: list[Bounds] = list(dict.fromkeys(self._of.values()))

    def holders(self) -> Iterator[tuple[Any, Bounds]]:
        """Each distinct box with the first device that holds it."""
        of_box: dict[Bounds, Any] = {}
        for device, bounds in self._of.items():
            of_box.setdefault(bounds, device)
        return ((device, bounds) for bounds, device in of_box.items())

    def array(self, filled: Mapping[Bounds, Array], dtype: np.dtype[Any]) -> jax.Array:
        """The array, of one NumPy array for each box. JAX on the CPU takes them over where they are aligned to 64 bytes: they are its own
        from now on, and must not change."""
        if not self.boxes:
            return jax.make_array_from_single_device_arrays(self.shape, self.sharding, [], dtype=dtype)
        return jax.make_array_from_callback(self.shape, self.sharding, lambda index: filled[bounds_at(index, self.shape)])

    def put(self, bounds: Bounds, values: Array) -> dict[Any, jax.Array]:
        """One box on each device that holds it."""
        return {device: jax.device_put(values, device) for device, held in self._of.items() if held == bounds}

    def join(self, parts: Mapping[Any, jax.Array]) -> jax.Array:
        """The array, of what put() returned for all boxes."""
        return jax.make_array_from_single_device_arrays(self.shape, self.sharding, [parts[device] for device in self._of])


def check_divisible(shape: Sequence[int], sharding: Sharding) -> None:
    """InvalidArgumentError naming dimension, axes and sizes. JAX itself refuses eagerly, and replicates the dimension when traced."""
    if not isinstance(sharding, NamedSharding):
        return
    spec = tuple(sharding.spec)
    if len(spec) > len(shape):
        raise InvalidArgumentError(f"the layout has {len(spec)} dimensions, the tensor {len(shape)}", found=f"layout {spec}",
                                   expected=f"at most {len(shape)} for shape {list(shape)}")
    for dimension, axes in enumerate(spec):
        names = () if axes is None or axes is PartitionSpec.UNCONSTRAINED else (axes,) if isinstance(axes, str) else tuple(axes)
        parts = math.prod(sharding.mesh.shape[name] for name in names)
        if shape[dimension] % parts:
            raise InvalidArgumentError(
                f"dimension {dimension} of size {shape[dimension]} is not divisible by {' x '.join(map(repr, names))} of size {parts}",
                found=f"shape {list(shape)}", expected=f"a multiple of {parts}", hint="choose another axis or dimension for it")


def misfit(shape: tuple[int, ...], sharding: Sharding) -> str | None:
    """Why an array of this shape cannot be laid out so; None when it can."""
    try:
        check_divisible(shape, sharding)
        sharding.shard_shape(shape)
    except InvalidArgumentError as error:
        return error.message
    except (ValueError, IndexError) as error:
        return str(error).splitlines()[0]
    return None
