"""Sizes as users write them, and memory for results."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from .dtypes import Array, address_of
from .errors import InvalidArgumentError

ALIGNMENT = 64
_LARGE = 2 << 20
DEFAULT_MEMORY = "256MiB"
# Host memory that is filled at a time with values for devices that do not take it over.
TURN_BYTES = 64 << 20

Item = TypeVar("Item")


def size(value: int | str, what: str) -> int:
    """Bytes of "5GB" (10^9), "5GiB" (2^30) or a whole number of bytes. InvalidArgumentError naming `what` for anything else."""
    if isinstance(value, str):
        return _core.parse_size(value)
    try:
        found = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = -1
    if not 0 <= found <= 1 << 63:
        raise InvalidArgumentError(f"{what} is not a size", found=repr(value), expected="bytes as a whole number, or text such as '5GB'")
    return found


def extents(values: Any, what: str, tensor: str | None = None) -> tuple[int, ...]:
    """Whole numbers from 0 on: a shape, or where a box begins. InvalidArgumentError naming `what` and the tensor for anything else."""
    try:
        found = tuple(map(operator.index, values))
    except TypeError:
        found = (-1,)
    if not all(0 <= n < 1 << 63 for n in found):
        raise InvalidArgumentError(f"{what} is not a list of whole numbers from 0 on", tensor=tensor, found=repr(values)[:80])
    return found


def empty(shape: Sequence[int] | int, dtype: Any = np.float32) -> Array:
    """A new array, not initialised, at a 64-byte boundary, from 2 MiB on in pages of that size.

    Loading into such memory is about twice as fast as into np.empty's, and JAX on the CPU takes it over without a copy.
    """
    shape = extents((shape,) if hasattr(shape, "__index__") else shape, "shape")
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0 or nbytes >= 1 << 63 or dtype.hasobject:  # nothing to align, or NumPy's to refuse or to make
        return np.empty(shape, dtype)
    arena = _core.arena(nbytes if nbytes >= _LARGE else nbytes + ALIGNMENT)
    return carve(arena, -address_of(arena) % ALIGNMENT, shape, dtype)


def in_turns(items: Iterable[Item], nbytes: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """The items in order, in lists of at most `limit` bytes, or of one item."""
    turn: list[Item] = []
    held = 0
    for item in items:
        if turn and held + nbytes(item) > limit:
            yield turn
            turn, held = [], 0
        turn.append(item)
        held += nbytes(item)
    if turn:
        yield turn


class Arena:
    """Memory for results that stay, side by side in pages of 2 MiB: small arrays share pages, and each is freed by itself."""

    def __init__(self) -> None:
        self._core = _core.Arena()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new array, not initialised, at a 64-byte boundary."""
        nbytes = math.prod(shape) * dtype.itemsize
        return self._core.take(nbytes).view(dtype).reshape(shape) if nbytes else np.empty(shape, dtype)


def carve(arena: Array, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The array that lies at this offset of an arena."""
    return arena[offset:offset + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
