"""Opened checkpoints: a mapping of names to tensors that are read when, and as far as, they are asked for."""
from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _core, slicing
from .arrays import writable_view
from .dtypes import Array, address_of, block_of, is_float, name_of, numpy_dtype, parse, short_name, unpack
from .errors import Error, InvalidArgumentError, TensorNotFoundError, UnsupportedError
from .memory import ALIGNMENT, DEFAULT_MEMORY, empty, extents, size
from .progress import Progress, reporting

# Tensors from this size on get memory of their own when loading, so that dropping one frees it; smaller ones share.
_OWN_MEMORY = 16 << 20
_SHARED_MEMORY = 64 << 20


def open(path: str | os.PathLike[str], *, isolate: bool = False, max_metadata: int | str = "1GiB") -> Checkpoint:
    """Opens a checkpoint: reads its metadata, and no tensor.

    path: a file (.safetensors, .weights.h5, .keras, .bin, .pt, other HDF5), an index (.safetensors.index.json, .weights.json), or a directory
    with a model in it. What a crashed replacement left there is finished or dropped first (see Checkpoint.notes).
    isolate: read HDF5 metadata in a child process, for files that are not trusted.
    max_metadata: cap on any single metadata object.

    Raises NotFoundError, CorruptError, UnsupportedError, PermissionDeniedError. Thread-safe, and so is what it returns.
    """
    return Checkpoint(_core.open(os.fspath(path), bool(isolate), size(max_metadata, "max_metadata")))


class Checkpoint(Mapping[str, "Tensor"]):
    """Names to lazy tensors, in the order in which the checkpoint was written; names are the format's own, verbatim.

    Made by shardwright.open(). Also a context manager; closing it ends reading, arrays that were read stay.
    A file that changes while the checkpoint is open is an AbortedError when it is next read, never a mix.
    """

    def __init__(self, core: _core.Checkpoint):
        self._opened: _core.Checkpoint | None = core
        self._ids = {name: i for i, name in enumerate(core.names())}

    @property
    def _core(self) -> _core.Checkpoint:
        if self._opened is None:
            raise InvalidArgumentError("the checkpoint was closed")
        return self._opened

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of this name. TensorNotFoundError, which is a KeyError too, with near names."""
        return Tensor(self, self._id(name))

    def _id(self, name: str) -> int:
        found = self._ids.get(name)
        if found is None:
            near = self._core.near(name) if isinstance(name, str) else []
            raise TensorNotFoundError("no such tensor", tensor=str(name), path=self.path,
                                      hint="near names: " + ", ".join(map(repr, near)) if near else None)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        if self._opened is None:
            return "<shardwright.Checkpoint, closed>"
        return f"<shardwright.Checkpoint '{self.path}' ({self.format}): {len(self)} tensors, {self.nbytes:,} bytes>"

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends reading and closes the files. Twice is fine."""
        self._opened = None

    @property
    def path(self) -> str:
        """As it was given."""
        return self._core.path

    @property
    def format(self) -> str:
        """Name of its format: "safetensors", "keras-sharded", ... (see shardwright.formats())."""
        return self._core.format

    @property
    def nbytes(self) -> int:
        """Bytes of all values as the checkpoint holds them; what several names share counts once."""
        return self._core.nbytes

    @property
    def metadata(self) -> dict[str, Any]:
        """What the file or index says beside its tensors; empty when nothing."""
        text = self._core.value("metadata")
        return json.loads(text) if isinstance(text, str) else {}

    @property
    def notes(self) -> list[str]:
        """What was done on opening to recover from a crash; usually empty."""
        return self._core.notes

    @property
    def files(self) -> list[str]:
        """Paths of the files that hold tensors."""
        return [self._core.describe(key) for key, _ in self._core.objects()]

    @property
    def side_files(self) -> list[str]:
        """Names of files that belong to the checkpoint and hold no tensors (configuration, tokenizer)."""
        return self._core.side_files()

    @property
    def ties(self) -> dict[str, str]:
        """Names that share the bytes of another one -> that one."""
        core, names = self._core, list(self._ids)
        return {name: names[core.same_as(i)] for i, name in enumerate(names) if core.same_as(i) != i}

    @property
    def bytes_read(self) -> int:
        """Bytes read from its files so far, gaps included."""
        return self._core.bytes_read

    def load(self, names: Iterable[str] | None = None, out: Mapping[str, Any] | None = None, *, memory: int | str = DEFAULT_MEMORY,
             threads: int = 0, progress: Progress = None) -> dict[str, Array]:
        """Reads whole tensors into memory, each file from front to back, every byte once.

        names: which, in which order; None: all, or those of `out`.
        out: arrays to read into (NumPy's, or PyTorch's on the CPU), by name; shape and dtype must be the tensors', strides are free.
            Everything is checked before the first byte is read. Arrays are then returned as NumPy views of these.
        memory: bytes that may be used beside the result. threads: workers; 0: as many as pay.
        progress: see shardwright.Progress.

        Returns arrays by name, at 64-byte boundaries. Those under 16 MiB share blocks of memory, which are freed with the last array
        of the block; names that are tied share one array. bfloat16 and float8 have ml_dtypes' types; packed types (float4, float6)
        are unpacked, one byte an element.
        Raises TensorNotFoundError, InvalidArgumentError (all that does not fit `out`, in one), CorruptError, AbortedError.
        """
        if isinstance(names, str):
            raise TypeError("names is a list of names, not one name: [name]")
        wanted = list(names if names is not None else out if out is not None else self)
        ids = [self._id(name) for name in wanted]
        if out is not None:
            return self._load_into(wanted, ids, out, memory, threads, progress)
        specs = self._core.specs(ids)
        whole = {kept: (dtype, shape, nbytes) for kept, dtype, shape, nbytes in specs}
        arrays, addresses = _allocate(list(whole.values()))
        with reporting(progress) as report:
            _core.read_whole(self._core, list(whole), addresses, size(memory, "memory"), threads, report)
        finished = dict(zip(whole, (_finished(array, dtype, shape) for array, (dtype, shape, _) in zip(arrays, whole.values()))))
        return {name: finished[kept] for name, (kept, *_) in zip(wanted, specs)}

    def _load_into(self, names: Sequence[str], ids: Sequence[int], out: Mapping[str, Any], memory: int | str, threads: int,
                   progress: Progress) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        problems = [f"'{name}': out has none" for name in names if name not in out]
        tensors = [Tensor(self, i) for i in ids]
        for name, tensor in zip(names, tensors):
            if name not in out:
                continue
            try:
                arrays[name] = writable_view(out[name])
            except Error as error:
                problems.append(f"'{name}': {error.message}")
                continue
            if arrays[name].shape != tensor.shape or arrays[name].dtype != tensor.dtype:
                problems.append(f"'{name}': {arrays[name].dtype.name} {list(arrays[name].shape)} for {tensor.dtype.name} {list(tensor.shape)}")
        if problems:
            raise InvalidArgumentError(f"{len(problems)} of {len(names)} arrays do not fit: " + "; ".join(problems[:20]), path=self.path)
        self.read([(name, None, arrays[name]) for name in names], memory=memory, threads=threads, progress=progress)
        return arrays

    def read(self, boxes: Iterable[tuple[str, Sequence[int] | None, Any]], *, memory: int | str = DEFAULT_MEMORY, threads: int = 0,
             progress: Progress = None) -> None:
        """Fills arrays with boxes of tensors, all in one pass over the files.

        boxes: (name, start, array): where the box begins (None: at 0) and the array that takes it, whose shape is the box's extents.
            Boxes of one tensor do not overlap; together they may be the whole of it, and it is then read once from front to back.
            Arrays may have any strides; floating types other than the tensor's are converted to, other types must be equal.
        memory, threads, progress: see load().

        Raises as load() does. When it raises while reading, the arrays hold some of the values.
        """
        fitting: list[tuple[Tensor, tuple[int, ...], Array]] = []
        for name, start, array in boxes:
            tensor, view = self[name], writable_view(array)
            begin = (0,) * len(tensor.shape) if start is None else extents(start, "start of a box", name)
            inside = len(begin) == len(tensor.shape) == view.ndim and all(
                b + n <= e for b, n, e in zip(begin, view.shape, tensor.shape))
            if not inside:
                raise InvalidArgumentError("the box lies outside the tensor", tensor=name, path=self.path,
                                           found=f"start {list(begin)}, extents {list(view.shape)}", expected=f"within {list(tensor.shape)}")
            fitting.append((tensor, begin, view))
        self._fill(fitting, memory, threads, progress)

    def _fill(self, boxes: list[tuple[Tensor, tuple[int, ...], Array]], memory: int | str, threads: int, progress: Progress) -> None:
        """read(), of boxes that lie inside their tensors and arrays that can be written."""
        packed = [(tensor, start, array) for tensor, start, array in boxes if tensor._packed]
        self._read([box for box in boxes if not box[0]._packed] if packed else boxes, memory, threads, progress)
        for tensor, start, array in packed:
            values = tensor[tuple(slice(b, b + n) for b, n in zip(start, array.shape))]
            if array.dtype != values.dtype:
                raise InvalidArgumentError("packed types are not converted", tensor=tensor.name, found=array.dtype.name,
                                           expected=values.dtype.name)
            array[...] = values

    def _read(self, boxes: list[tuple[Tensor, tuple[int, ...], Array]], memory: int | str, threads: int, progress: Progress) -> None:
        """Every array in one call of the engine; those of packed tensors are their bytes, wanted whole."""
        wanted: dict[tuple[int, str], list[Any]] = {}
        for tensor, start, array in boxes:
            if array.size == 0:
                continue
            if tensor._packed:
                extents, strides, name = tensor.shape, [], tensor._type
            else:
                extents, name = array.shape, name_of(array.dtype, tensor.name)
                strides = [stride // array.itemsize for stride in array.strides]
            wanted.setdefault((tensor._id, name), []).append((start, extents, address_of(array), strides, False))
        if not wanted:
            return
        with reporting(progress) as report:
            _core.read(self._core, [(i, name, pieces) for (i, name), pieces in wanted.items()], size(memory, "memory"), threads, report)


class Tensor:
    """One tensor of an opened checkpoint. Nothing is read before it is indexed or made an array."""

    __slots__ = ("_checkpoint", "_id", "_type", "name", "nbytes", "shape")

    name: str
    shape: tuple[int, ...]
    nbytes: int
    """Bytes of the values in the checkpoint's dtype; packed types count packed."""

    def __init__(self, checkpoint: Checkpoint, tensor_id: int):
        self._checkpoint, self._id = checkpoint, tensor_id
        self.name, self._type, self.shape, self.nbytes = checkpoint._core.spec(tensor_id)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype; of ml_dtypes for bfloat16, float8, float6 and float4."""
        return numpy_dtype(self._type)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def files(self) -> list[str]:
        """Paths of the files that hold its bytes."""
        core = self._checkpoint._core
        objects = core.objects()
        return [core.describe(objects[i][0]) for i in core.object_ids_of(self._id)]

    @property
    def _packed(self) -> bool:
        return block_of(self._type)[0] != 1

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Along the first dimension, each read when it is its turn."""
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<shardwright.Tensor '{self.name}': {short_name(self._type)} {list(self.shape)}>"

    def __getitem__(self, index: Any) -> Any:
        """Values as a new array, by NumPy's basic indexing: integers, slices with any step, '...', None.

        Only what the index takes is read, and gaps of at most 64 KiB within it. Arrays of indices and masks are an IndexError.
        """
        return self.read(index)

    def read(self, index: Any = ..., *, out: Any = None, dtype: Any = None) -> Any:
        """What `index` takes, as [] does, into `out` or as another floating type.

        out: array of the result's shape, any strides, to be filled and returned (as a NumPy view of it).
        dtype: of the result; floating types are converted, rounding to nearest even. None: the dtype of `out`, or the tensor's.
        """
        chosen = slicing.select(index, self.shape)
        if out is not None:
            result = writable_view(out)
            if result.shape != chosen.shape or (dtype is not None and result.dtype != numpy_dtype(parse(dtype))):
                raise InvalidArgumentError("out does not fit", tensor=self.name, found=f"{result.dtype.name} {list(result.shape)}",
                                           expected=f"{self.dtype.name if dtype is None else dtype} {list(chosen.shape)}")
        else:
            result = empty(chosen.shape, self.dtype if dtype is None else numpy_dtype(parse(dtype)))
        if self._packed:
            if not is_float(result.dtype):
                raise UnsupportedError(f"no conversion from {short_name(self._type)} to {result.dtype.name}", tensor=self.name)
            result[...] = self._unpacked(chosen).astype(result.dtype, copy=False)
        else:
            self._fill(chosen, result)
        return result[()] if chosen.scalar and out is None else result

    def _fill(self, chosen: slicing.Selection, result: Array) -> None:
        counts = tuple(r.count for r in chosen.ranges)
        full = result if result.shape == counts else result.reshape(counts)
        if not np.may_share_memory(full, result) and result.size:  # an `out` whose strides cannot be seen with the dropped dimensions
            self._fill(chosen, whole := empty(chosen.shape, result.dtype))
            result[...] = whole
            return
        direct: list[tuple[Tensor, tuple[int, ...], Array]] = []
        for job in slicing.jobs(chosen.ranges, self.shape, full):
            if job.stepped:
                scratch = np.empty(job.cover, result.dtype)
                self._checkpoint._read([(self, job.start, scratch)], DEFAULT_MEMORY, 0, None)
                job.into[...] = scratch[job.steps]
            else:
                direct.append((self, job.start, job.into))
        self._checkpoint._read(direct, DEFAULT_MEMORY, 0, None)

    def _unpacked(self, chosen: slicing.Selection) -> Array:
        """Of a packed type. Whole rows of bytes are read where rows are whole bytes, else the whole tensor."""
        block, block_bytes = block_of(self._type)
        core_read = self._checkpoint._read
        packed = np.empty(self.nbytes, np.uint8)
        core_read([(self, (0,) * self.ndim, packed)], DEFAULT_MEMORY, 0, None)
        values = unpack(packed, self._type).reshape(self.shape)
        for d, r in enumerate(chosen.ranges):
            stop = r.start + r.count * r.step
            values = values[(slice(None),) * d + (slice(r.start, None if stop < 0 else stop, r.step) if r.count else slice(0, 0),)]
        return values.reshape(chosen.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The whole tensor, read. ValueError for copy=False: there is nothing in memory to be shared."""
        if copy is False:
            raise ValueError("a lazy tensor has no memory to share: reading it makes a new array")
        array = np.asarray(self.read())
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """The whole tensor, read, as a DLPack capsule: torch.from_dlpack(tensor). bfloat16 and float8 too."""
        if options.get("copy") is False:
            raise BufferError("a lazy tensor has no memory to share: reading it makes a new array")
        options.pop("copy", None)
        return exportable(np.asarray(self.read()), self._type).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


_DLPACK_CODES = {"bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
                 "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8)}


def exportable(array: Array, name: str) -> Any:
    """The array, or an object over its memory that can do what NumPy cannot: __dlpack__ of ml_dtypes' types."""
    if name not in _DLPACK_CODES:
        return array
    return _core.export_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8), list(array.shape), *_DLPACK_CODES[name])


def _allocate(specs: Sequence[tuple[str, tuple[int, ...], int]]) -> tuple[list[Array], list[int]]:
    """Memory for values of (dtype, shape, bytes), and its addresses: of its own when large, else in blocks that several share. Packed
    types get bytes."""
    arrays: list[Array] = []
    addresses: list[int] = []
    arena, begin, at, end = np.empty(0, np.uint8), 0, 0, 0
    left = sum(nbytes + ALIGNMENT for _, _, nbytes in specs if nbytes < _OWN_MEMORY)
    for name, shape, nbytes in specs:
        dtype = numpy_dtype(name)
        if block_of(name)[0] != 1:
            shape, dtype = (nbytes,), np.dtype(np.uint8)
        if nbytes >= _OWN_MEMORY or nbytes == 0:
            arrays.append(empty(shape, dtype))
            addresses.append(address_of(arrays[-1]))
            continue
        if at + nbytes > end:
            arena = _core.arena(min(_SHARED_MEMORY, left + ALIGNMENT))
            begin = address_of(arena)
            at, end = -begin % ALIGNMENT, arena.nbytes
        arrays.append(np.ndarray(shape, dtype, arena, at))
        addresses.append(begin + at)
        at += nbytes + -nbytes % ALIGNMENT
        left -= nbytes + ALIGNMENT
    return arrays, addresses


def _finished(array: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    """What load() returns of the memory it read into."""
    return array if block_of(dtype)[0] == 1 else unpack(array, dtype).reshape(shape)
