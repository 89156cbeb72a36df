"""Arrays of NumPy, PyTorch and JAX as what they are underneath: pieces of memory, or something to be asked for values.

No framework is imported here: one that is not loaded has no arrays.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtypes import Array, address_of, base_name, block_of, name_of, numpy_dtype, pack, parse, plain_name
from .errors import InvalidArgumentError, UnsupportedError
from .memory import extents

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Start and extents."""


@dataclass(frozen=True)
class Producer:
    """A tensor that is made when its turn to be written comes, and dropped after it.

    shape, dtype: of the whole, known beforehand; dtype as anything that shardwright takes ("bfloat16", np.float32).
    whole: returns the whole array; called once, when the tensor before it is written. Or
    box: called as box(start, stop) with an index per dimension, returns that part; parts come in C order, a few MiB each, so that
        the whole is never in memory.
    Both are called on the thread that called save(). What they return must have the shape and dtype said here.
    """

    shape: Sequence[int]
    dtype: Any
    whole: Callable[[], Any] | None = None
    box: Callable[[tuple[int, ...], tuple[int, ...]], Any] | None = None


@dataclass(frozen=True)
class Sharded:
    """A tensor whose parts lie in different arrays: pieces are (start, array), disjoint, together the whole."""

    shape: Sequence[int]
    dtype: Any
    pieces: Sequence[tuple[Sequence[int], Any]]


@dataclass(slots=True)
class Source:
    """A tensor to be saved. where: the address of all of it, in C order; or pieces of memory; or its place in a file (path, bytes of the file, version of
    the file, offset, bytes to its last element, stored dtype, strides in elements or none); None: `producer` makes it. keep: what owns the memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    where: int | list[tuple[tuple[int, ...], tuple[int, ...], int, list[int], bool]] | tuple[str, int, str, int, int, str, list[int]] | None = None
    producer: Producer | None = None
    spread: bool = False  # other processes have parts of it
    keep: Any = None


def source_of(name: str, value: Any) -> Source:
    """What is to be saved under `name`. Values are neither copied nor read.

    Errors name the tensor: UnsupportedError for dtypes and kinds of arrays that cannot be saved, InvalidArgumentError for what is none.
    """
    if type(value) is np.ndarray and value.flags.c_contiguous and (dtype := plain_name(value.dtype)) is not None:
        return Source(name, dtype, value.shape, address_of(value), keep=value)
    if isinstance(value, Producer):
        return _of_producer(name, value)
    if isinstance(value, Sharded):
        pieces = [(extents(start, "start of a piece", name), _host(name, array)) for start, array in value.pieces]
        return _of_pieces(name, extents(value.shape, "shape", name), parse(value.dtype), pieces)
    if _is(value, "torch", "Tensor"):
        return _of_torch(name, value)
    if _is(value, "jax", "Array"):
        return _of_jax(name, value)
    return _of_numpy(name, _host(name, value))


def _is(value: Any, module: str, kind: str) -> bool:
    """Whether value is module.kind, without importing it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, kind, ()))


def _host(name: str, value: Any) -> Array:
    """Anything that is an array in the host's memory, as NumPy sees it, without a copy."""
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedError("a masked array cannot be saved: its mask would be lost", tensor=name, hint="fill it first: array.filled(...)")
    if _is(value, "torch", "Tensor"):
        return _torch_view(value.detach())
    protocols = ("__array_interface__", "__array__", "__array_struct__", "__dlpack__")
    if not isinstance(value, (np.ndarray, np.generic, memoryview)) and not any(hasattr(value, p) for p in protocols):
        raise InvalidArgumentError(f"{type(value).__name__} is no array", tensor=name, hint="np.asarray(...) says which dtype is meant")
    if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    try:
        return np.from_dlpack(value)
    except (RuntimeError, BufferError) as error:  # a device that NumPy cannot reach, or a type that it does not know
        raise UnsupportedError(f"{type(value).__name__} cannot be taken over by NumPy: {error}", tensor=name,
                               hint="give it as an array of NumPy, PyTorch or JAX") from None


def _of_producer(name: str, value: Producer) -> Source:
    if (value.whole is None) == (value.box is None):
        raise InvalidArgumentError("a Producer has either `whole` or `box`", tensor=name)
    return Source(name, parse(value.dtype), extents(value.shape, "shape", name), producer=value)


def _of_numpy(name: str, array: Array) -> Source:
    dtype = name_of(array.dtype, name)
    packed = block_of(dtype)[0] != 1
    if packed or (array.size and any(stride % array.itemsize for stride in array.strides)):
        # Elements that are to be packed, or lie askew (fields of records): each part is put together when it is written.
        def box(start: tuple[int, ...], stop: tuple[int, ...]) -> Array:
            return array[tuple(map(slice, start, stop))]
        return Source(name, dtype, array.shape, producer=Producer(array.shape, dtype, box=box), keep=array)
    return _of_pieces(name, array.shape, dtype, [((0,) * array.ndim, array)])


def _of_pieces(name: str, shape: tuple[int, ...], dtype: str, pieces: Sequence[tuple[tuple[int, ...], Array]]) -> Source:
    where = []
    for start, array in pieces:
        if base_name(array.dtype) != dtype or array.ndim != len(shape):
            raise InvalidArgumentError("a piece has another dtype or number of dimensions than its tensor", tensor=name,
                                       found=f"{array.dtype.name} {list(array.shape)}", expected=f"{dtype}, {len(shape)} dimensions")
        strides = [stride // array.itemsize for stride in array.strides]
        where.append((tuple(map(int, start)), array.shape, address_of(array), strides, array.dtype.byteorder == ">"))
    return Source(name, dtype, shape, where, keep=pieces)


# ---- PyTorch

_SAME_WIDTH = {1: "uint8", 2: "int16"}


def _torch_view(tensor: Any) -> Array:
    """A CPU tensor's memory as NumPy sees it; with ml_dtypes' types, which torch does not know."""
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        dtype = numpy_dtype(name)
    except TypeError:
        dtype = None
    if dtype is None or (dtype.isbuiltin != 1 and dtype.itemsize not in _SAME_WIDTH):
        raise UnsupportedError(f"checkpoints have no type for torch.{name}")
    known = dtype.isbuiltin == 1
    view: Array = (tensor if known else tensor.view(getattr(sys.modules["torch"], _SAME_WIDTH[dtype.itemsize]))).numpy()
    return view if known else view.view(dtype)


def _of_torch(name: str, value: Any) -> Source:
    torch = sys.modules["torch"]
    tensor = value.detach()
    if hasattr(tensor, "device_mesh") and hasattr(tensor, "placements"):
        return _of_dtensor(name, tensor)
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta" or hasattr(tensor, "full_tensor"):
        kind = "meta" if tensor.device.type == "meta" else type(value).__name__ if hasattr(tensor, "full_tensor") else \
            "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise UnsupportedError(f"a {kind} tensor cannot be saved as it is", tensor=name,
                               hint="give a dense tensor, its parts as shardwright.Sharded, or a shardwright.Producer")
    if tensor.dtype == getattr(torch, "float4_e2m1fn_x2", None):
        return _of_torch_packed(name, tensor)
    shape = tuple(tensor.shape)
    if tensor.device.type == "cpu" and not tensor.is_conj() and not tensor.is_neg():
        try:
            return _of_numpy(name, _torch_view(tensor))
        except UnsupportedError as error:
            error.tensor = name
            raise

    def box(start: tuple[int, ...], stop: tuple[int, ...]) -> Array:
        return _torch_view(tensor[tuple(map(slice, start, stop))].resolve_conj().resolve_neg().cpu())
    probe = _torch_view(torch.empty(0, dtype=tensor.dtype))
    return Source(name, name_of(probe.dtype, name), shape, producer=Producer(shape, probe.dtype, box=box), keep=tensor)


def _of_dtensor(name: str, tensor: Any) -> Source:
    """What this process holds of it."""
    shape = tuple(tensor.shape)
    return box_of_dtensor(name, tensor, (0,) * len(shape), shape, tuple(range(len(shape))))


def box_of_dtensor(name: str, tensor: Any, start: tuple[int, ...], extents: tuple[int, ...], dims: tuple[int | None, ...]) -> Source:
    """What this process holds of a box of it. dims: those of the box that are seen, in this order, None for one more of one element; others have
    one element."""
    from .torch.parts import counted_from_front, part_of, problem_of
    shape, mesh = tuple(tensor.shape), tensor.device_mesh
    placements = counted_from_front(tensor.placements, len(shape))
    if problem := problem_of(shape, mesh.ndim, placements):
        raise UnsupportedError(problem, tensor=name, hint="redistribute() it first")
    local = tensor.to_local()

    def on_host(part: Any) -> Array:
        return _torch_view(part.cpu().resolve_conj().resolve_neg())
    coordinate, seen = mesh.get_coordinate(), tuple(1 if d is None else extents[d] for d in dims)
    held: list[tuple[tuple[int, ...], Array]] = []
    if coordinate is not None and 0 in shape:
        held.append(((0,) * len(seen), on_host(local).reshape(seen)))
    elif coordinate is not None:
        for first, within in part_of(shape, tuple(mesh.shape), coordinate, placements).boxes():
            low = [max(s, f) for s, f in zip(start, first)]
            high = [min(s + n, f + w.stop - w.start) for s, n, f, w in zip(start, extents, first, within)]
            if all(a < b for a, b in zip(low, high)):
                part = on_host(local[(*(slice(w.start + a - f, w.start + b - f) for w, f, a, b in zip(within, first, low, high)), ...)])
                kept = [d for d in dims if d is not None]
                rest = [d for d in range(part.ndim) if d not in kept]
                part = part.transpose(kept + rest)[(*(None if d is None else slice(None) for d in dims), ..., *(0 for _ in rest))]
                held.append((tuple(0 if d is None else low[d] - start[d] for d in dims), part))
    source = _of_pieces(name, seen, name_of(on_host(local.new_empty(0)).dtype, name), held)
    source.spread = mesh.size() > 1
    return source


def _of_torch_packed(name: str, tensor: Any) -> Source:
    """float4: torch's last dimension counts bytes, ours elements."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.ndim == 0:
        raise UnsupportedError("a packed tensor must be contiguous, on the CPU", tensor=name, hint="tensor.contiguous().cpu()")
    raw = tensor.view(sys.modules["torch"].uint8).numpy()
    shape = (*raw.shape[:-1], 2 * raw.shape[-1])
    return Source(name, "float4_e2m1fn", shape, [((0,) * raw.ndim, shape, address_of(raw), [], False)], keep=raw)


# ---- JAX

def _of_jax(name: str, value: Any) -> Source:
    """Sharded arrays piece by piece, as they lie: np.asarray of the whole would gather it, and keep it for as long as the array lives."""
    if not isinstance(value.dtype, np.dtype):
        raise UnsupportedError(f"checkpoints have no type for {value.dtype}", tensor=name, hint="of a random key: jax.random.key_data(key)")
    dtype, shape = name_of(value.dtype, name), tuple(value.shape)
    if not value.is_fully_addressable:
        return _of_jax_processes(name, value, dtype)
    shards = [shard for shard in value.addressable_shards if shard.replica_id == 0]
    if all(shard.device.platform == "cpu" for shard in shards) and block_of(dtype)[0] == 1:
        pieces = [(tuple(part.start or 0 for part in shard.index), np.asarray(shard.data)) for shard in shards]
        return _of_pieces(name, shape, dtype, pieces)

    def box(start: tuple[int, ...], stop: tuple[int, ...]) -> Array:
        return np.asarray(value[tuple(map(slice, start, stop))])
    return Source(name, dtype, shape, producer=Producer(shape, dtype, box=box), keep=value)


def _of_jax_processes(name: str, value: Any, dtype: str) -> Source:
    """What this process holds of an array of several: every box once."""
    if block_of(dtype)[0] != 1:
        raise UnsupportedError("arrays of packed types cannot be spread over processes when they are saved", tensor=name, hint="cast it to int8")
    boxes = {tuple((part.start or 0, part.stop) for part in shard.index): shard for shard in value.addressable_shards}
    pieces = [(tuple(start for start, _ in box), np.asarray(shard.data)) for box, shard in boxes.items()]
    source = _of_pieces(name, tuple(value.shape), dtype, pieces)
    source.spread = True
    return source


# ---- producing, and arrays to be filled

class Filler:
    """Calls producers for the engine: (id, start, extents, bytes to fill). Holds one whole tensor at a time."""

    def __init__(self, sources: Sequence[Source]):
        self._sources = sources
        self._held: tuple[int, Array] | None = None

    def __call__(self, index: int, start: Sequence[int], extents: Sequence[int], into: memoryview) -> None:
        source = self._sources[index]
        stop = tuple(s + n for s, n in zip(start, extents))
        values = self._values(index, source, tuple(start), stop)
        if block_of(source.dtype)[0] != 1:
            np.frombuffer(into, np.uint8)[...] = pack(values, source.dtype)
        else:
            np.frombuffer(into, numpy_dtype(source.dtype)).reshape(tuple(extents))[...] = values

    def _values(self, index: int, source: Source, start: tuple[int, ...], stop: tuple[int, ...]) -> Array:
        producer = source.producer
        assert producer is not None
        if producer.box is not None:
            return _checked(source, producer.box(start, stop), tuple(b - a for a, b in zip(start, stop)))
        if self._held is None or self._held[0] != index:
            self._held = None  # before the next one is made
            assert producer.whole is not None
            self._held = index, _checked(source, producer.whole(), source.shape)
        return self._held[1][tuple(map(slice, start, stop))]


def _checked(source: Source, value: Any, shape: tuple[int, ...]) -> Array:
    array = _host(source.name, value)
    if array.shape != shape or base_name(array.dtype) != source.dtype:
        raise InvalidArgumentError("the producer returned something else than it promised", tensor=source.name,
                                   found=f"{array.dtype.name} {list(array.shape)}", expected=f"{source.dtype} {list(shape)}")
    return array


def writable_view(value: Any) -> Array:
    """The memory of an array that is to be filled: NumPy's, or PyTorch's on the CPU. InvalidArgumentError when it cannot be."""
    if _is(value, "torch", "Tensor"):
        if value.device.type != "cpu":
            raise InvalidArgumentError("only arrays in the host's memory can be filled", found=str(value.device))
        value = _torch_view(value.detach())
    if not isinstance(value, np.ndarray):
        raise InvalidArgumentError(f"{type(value).__name__} cannot be filled", expected="an array of NumPy or PyTorch")
    if not value.flags.writeable:
        raise InvalidArgumentError("the array is read-only")
    if not value.dtype.isnative:
        raise InvalidArgumentError("the array is not in the machine's byte order", found=str(value.dtype))
    if value.size == 0 or value.flags.c_contiguous:
        return value
    askew = any(stride % value.itemsize for stride in value.strides)
    if askew or any(stride == 0 and extent > 1 for stride, extent in zip(value.strides, value.shape)):
        raise InvalidArgumentError("elements of the array overlap or are not whole steps apart", found=f"strides {value.strides}")
    return value
