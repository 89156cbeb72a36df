"""A safetensors file as its bytes: written and read here without any library, for dtypes that frameworks lack.

A tensor is (dtype as safetensors spells it, shape, bytes).
"""
import json
import math
import pathlib
import struct

import numpy as np

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}
Tensor = tuple[str, list[int], bytes]


def nbytes(dtype: str, shape: list[int]) -> int:
    bits = math.prod(shape) * BITS[dtype]
    assert bits % 8 == 0
    return bits // 8


def header(tensors: dict[str, tuple[str, list[int]]], metadata: dict | None = None) -> tuple[bytes, int]:
    """Length prefix and header of the tensors in the order given, and the bytes of data to follow."""
    table: dict = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + nbytes(dtype, shape)
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, at


def write(path: pathlib.Path, tensors: dict[str, Tensor], metadata: dict | None = None) -> None:
    start, _ = header({name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}, metadata)
    path.write_bytes(start + b"".join(data for _, _, data in tensors.values()))


def write_sparse(path: pathlib.Path, tensors: dict[str, tuple[str, list[int]]], metadata: dict | None = None) -> None:
    """All values zero, and no block of the disk used for them."""
    start, size = header(tensors, metadata)
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + size)


def read(path: pathlib.Path) -> dict[str, Tensor]:
    content = path.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    table = json.loads(content[8:8 + length])
    table.pop("__metadata__", None)
    data = content[8 + length:]
    return {name: (info["dtype"], info["shape"], data[slice(*info["data_offsets"])]) for name, info in table.items()}


def metadata_of(path: pathlib.Path) -> dict | None:
    with path.open("rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)).get("__metadata__")


def read_set(path: pathlib.Path) -> dict[str, Tensor]:
    """A file, or every *.safetensors of a directory."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    tensors: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in read(file).items():
            assert name not in tensors, f"{name} is in two shards"
            tensors[name] = tensor
    return tensors


def random_bytes(rng: np.random.Generator, dtype: str, shape: list[int]) -> bytes:
    """Any bits the type can have (BOOL: 0 and 1)."""
    size = nbytes(dtype, shape)
    return rng.integers(0, 2 if dtype == "BOOL" else 256, size, dtype=np.uint8).tobytes()


def every_dtype(rng: np.random.Generator) -> dict[str, Tensor]:
    """Every dtype in shapes that matter: matrix, odd vector, scalar, nothing. Sub-byte types in whole bytes."""
    tensors: dict[str, Tensor] = {}
    # safetensors' own order: widest type first, names ascending. Then a copy can be compared byte for byte.
    for dtype in reversed(BITS):
        whole = BITS[dtype] >= 8
        shapes = {"matrix": [3, 8], "nothing": [0, 4], "vector": [7] if whole else [12]}
        if whole:
            shapes["scalar"] = []
        for kind in sorted(shapes):
            name = f"{dtype.lower()}.{kind}"
            tensors[name] = (dtype, shapes[kind], random_bytes(rng, dtype, shapes[kind]))
    return tensors
