"""NumPy's dtypes and the library's: which are which, and the packed ones, of which several elements share a byte."""
from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from . import _core
from .errors import InvalidArgumentError, UnsupportedError

Array = npt.NDArray[Any]

# NumPy's name -> elements and bytes of a block.
_BLOCKS = {numpy_name: (elements, size) for _, numpy_name, elements, size in _core.dtypes()}
_SHORT = {numpy_name: name for name, numpy_name, _, _ in _core.dtypes()}
# NumPy counts bytes where safetensors counts bits.
_AMBIGUOUS = {"f4": "float32", "i8": "int64", "u8": "uint64"}


# Read are all that zarr names; written those that TensorStore, and so Orbax, knows.
_SMALL = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
_WRITTEN_SMALL = ("int2", "int4")


def widened(value: Any) -> tuple[Any, str | None]:
    """An array of integers of less than a byte as one of bytes, and what it was, for the note of a tree; None: it was none."""
    name = str(getattr(value, "dtype", ""))
    return (value.astype(_SMALL[name]), name) if name in _WRITTEN_SMALL else (value, None)


def stored_name(name: str) -> str:
    """The name of the dtype that such arrays are stored with, which is that of all others."""
    return _SMALL.get(name, name)


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name in the library's table. Packed types (float4, float6) have one byte an element in NumPy."""
    return np.dtype(getattr(ml_dtypes, name, name))


@functools.lru_cache(maxsize=256)
def base_name(dtype: np.dtype[Any]) -> str:
    """dtype.name, which NumPy puts together anew each time."""
    return dtype.name


def name_of(dtype: np.dtype[Any], tensor: str | None = None) -> str:
    """The table's name of a NumPy dtype, in any byte order. UnsupportedError when it has none; `tensor` is named there."""
    name = base_name(dtype)
    if name not in _BLOCKS:
        raise UnsupportedError(f"checkpoints have no type for dtype {name}", tensor=tensor,
                               hint="cast it first; small integers to int8 or uint8")
    return name


@functools.lru_cache(maxsize=256)
def plain_name(dtype: np.dtype[Any]) -> str | None:
    """The table's name of a dtype whose arrays are written as they lie: known, native, not packed. None for others."""
    name = base_name(dtype)
    return name if name in _BLOCKS and _BLOCKS[name][0] == 1 and dtype.isnative else None


def address_of(array: Array) -> int:
    """Of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def parse(dtype: Any) -> str:
    """What a user wrote as a dtype (NumPy's or ml_dtypes' dtype or scalar type, "bf16", "float32"): the table's name."""
    if isinstance(dtype, str):
        if dtype in _AMBIGUOUS:
            raise InvalidArgumentError(f"'{dtype}' is {_AMBIGUOUS[dtype]} to NumPy, and {_core.parse_dtype(dtype)} to checkpoints",
                                       hint="write the name in full")
        return _core.parse_dtype(dtype)
    try:
        return name_of(np.dtype(dtype))
    except TypeError:
        raise InvalidArgumentError(f"not a dtype: {dtype!r}", expected="a NumPy dtype, or a name such as 'bfloat16'") from None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Floating types of NumPy and of ml_dtypes: those that are converted into each other."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def short_name(name: str) -> str:
    """As safetensors spells it: "BF16"."""
    return _SHORT[name]


def block_of(name: str) -> tuple[int, int]:
    """Elements and bytes of a block: (1, 4) for float32, (2, 1) for float4_e2m1fn, (4, 3) for float6_e2m3fn."""
    return _BLOCKS[name]


def unpack(packed: Array, name: str) -> Array:
    """Elements, one byte each, of bytes in which they are packed, low bits first."""
    if block_of(name) == (2, 1):
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)
    else:
        words = packed.reshape(-1, 3).astype(np.uint32)
        word = words[:, 0] | words[:, 1] << 8 | words[:, 2] << 16
        codes = np.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], axis=-1).reshape(-1).astype(np.uint8)
    return codes.view(numpy_dtype(name))


def pack(array: Array, name: str) -> Array:
    """The way back: bytes of the elements in C order. REQUIRES: their number fits whole blocks."""
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if block_of(name) == (2, 1):
        return (codes[0::2] & 15) | (codes[1::2] & 15) << 4
    word = sum((codes[i::4].astype(np.uint32) & 63) << 6 * i for i in range(4))
    return np.stack([word & 255, word >> 8 & 255, word >> 16 & 255], axis=-1).astype(np.uint8).reshape(-1)
