"""How values come into variables, by the backend of Keras: into which memory they are read, and what is then handed to Keras.

JAX on the CPU takes aligned memory over as it is, so a value is read once and never copied; sharded variables are read shard by shard.
PyTorch's variables can be filled where they are. Other backends get NumPy arrays.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from ..dtypes import Array, numpy_dtype
from ..memory import empty
from .walk import shape_of

Allocate = Callable[[tuple[int, ...], "np.dtype[Any]"], Array]
# A device gets values through pieces of this size.
STAGING_BYTES = 32 << 20


@dataclass
class Landing:
    """boxes: (start, array) that values are to be read into, together the whole. finish: called when they are; returns what
    Variable.assign is given, which then has nothing to convert and, where that can be, nothing to copy."""

    boxes: list[tuple[tuple[int, ...], Array]]
    finish: Callable[[], Any]


def dtype_of(variable: Any) -> np.dtype[Any]:
    return numpy_dtype(keras.backend.standardize_dtype(variable.dtype))


def land(variable: Any, allocate: Allocate = empty, free_first: bool = False) -> Landing:
    """Memory for a value that the variable is to be assigned, unchanged. free_first: gives up the old value now."""
    backend = keras.backend.backend()
    if backend == "jax":
        return _land_jax(variable, allocate, free_first)
    if backend == "torch" and fills_in_place(variable):
        return _land_torch(variable)
    shape = shape_of(variable)
    array = allocate(shape, dtype_of(variable))
    return Landing([((0,) * len(shape), array)], lambda: array)


# ---- JAX

def _land_jax(variable: Any, allocate: Allocate, free_first: bool) -> Landing:
    import jax
    from ..jax.pieces import Pieces, extents, start
    value = variable.value
    pieces, dtype = Pieces(tuple(value.shape), value.sharding), np.dtype(value.dtype)
    committed = bool(getattr(value, "committed", True))
    if free_first:
        value.delete()
    del value
    arrays = {bounds: allocate(extents(bounds), dtype) for bounds in pieces.boxes}

    def finish() -> Any:
        if len(pieces.sharding.device_set) == 1 and not committed:
            free = jax.device_put(arrays[pieces.boxes[0]])
            if free.devices() == pieces.sharding.device_set:
                return free
        return pieces.array(arrays, dtype)
    return Landing([(start(bounds), array) for bounds, array in arrays.items()], finish)


def are_spread(variables: Iterable[Any]) -> bool:
    """Whether any of them lies over several devices, no one of which holds it all."""
    return keras.backend.backend() == "jax" and any(not variable.value.is_fully_replicated for variable in variables)


def loads_in_trace(saveable: Any, store: Callable[[dict[str, Any]], Any], variables: dict[str, Any]) -> bool:
    """Whether load_own_variables() works on arrays of JAX as they are, and gathers none of them: tried out without values, which is free.
    store: makes what the method is given, of what stands for the values; variables: whose shapes and types those have."""
    import jax

    def load(values: dict[str, Any]) -> None:
        with keras.StatelessScope():
            saveable.load_own_variables(store(values))
    try:
        jax.eval_shape(load, {key: jax.ShapeDtypeStruct(shape_of(v), dtype_of(v)) for key, v in variables.items()})
    except Exception:  # whatever a method of the user's raises when it is given no NumPy array
        return False
    return True


# ---- PyTorch

def fills_in_place(variable: Any) -> bool:
    value = variable.value
    return bool(value.device.type == "cpu" and value.layout == _torch().strided and all(
        stride != 0 or extent <= 1 for stride, extent in zip(value.stride(), value.shape)))


def on_torch_device(variable: Any) -> bool:
    return keras.backend.backend() == "torch" and variable.value.device.type not in ("cpu", "meta")


def _torch() -> Any:
    import torch
    return torch


def _land_torch(variable: Any) -> Landing:
    from ..arrays import writable_view
    value = variable.value
    return Landing([((0,) * value.dim(), writable_view(value))], lambda: value)


def fill_torch_device(variable: Any, read: Callable[[tuple[int, ...], Array], None], staging_bytes: int = STAGING_BYTES) -> Any:
    """Fills a variable on another device through staging memory, some rows at a time. read(start, array) fills the array with a
    box of the value."""
    value = variable.value
    shape, dtype = tuple(value.shape), dtype_of(variable)
    if not shape:
        _copy_to_torch(value, lambda array: read((), array), (), dtype)
        return value
    row_bytes = max(1, int(np.prod(shape[1:], dtype=object)) * dtype.itemsize)
    step = max(1, staging_bytes // row_bytes)
    for first in range(0, shape[0], step):
        rows = value[first:first + step]
        start = (first, *(0,) * (len(shape) - 1))
        _copy_to_torch(rows, lambda array, start=start: read(start, array), tuple(rows.shape), dtype)  # type: ignore[misc]
    return value


def _copy_to_torch(into: Any, fill: Callable[[Array], None], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    from ..arrays import writable_view
    torch = _torch()
    staged = torch.empty(shape, dtype=into.dtype)
    fill(writable_view(staged))
    with torch.no_grad():
        into.copy_(staged)
