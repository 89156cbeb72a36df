"""Where the bytes of a model's tensors are: in memory, in files that hooks of accelerate read from, or behind something that can only be asked.

Nothing is onloaded, and no tensor is read: of files, only headers. No framework but PyTorch is imported: hooks are known by their attributes.
"""
from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch

from .. import _core
from ..checkpoint import Checkpoint
from ..checkpoint import open as open_checkpoint
from ..errors import Error


@dataclass(frozen=True)
class InFile:
    """version: of the file, before it was looked into. offset: in bytes, of the first element. stored: the type that is there; loaders make
    `dtype` of it. strides: in elements."""

    path: str
    file_bytes: int
    version: str
    offset: int
    stored: torch.dtype
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def identity(self) -> Any:
        return None if 0 in self.shape else (self.path, self.offset, self.stored, self.dtype, self.shape, self.strides)


@dataclass(frozen=True)
class InMemory:
    tensor: torch.Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def identity(self) -> Any:
        """None for what has no address of its own: no elements, no storage. What is made of other tensors is known by its object."""
        t = self.tensor
        if t.numel() and is_wrapped(t):
            return "object", id(t)
        if t.numel() == 0 or t.layout is not torch.strided or t.untyped_storage().data_ptr() == 0:
            return None
        return str(t.device), t.data_ptr(), t.dtype, tuple(t.shape), t.stride()


@dataclass(frozen=True)
class PartOfSpread:
    """A box of a tensor that is spread over processes, seen from the front of each of `dims`; None: a dimension of one element that the tensor has not.

    start, extents: in the tensor's own dimensions.
    """

    tensor: Any
    start: tuple[int, ...]
    extents: tuple[int, ...]
    dims: tuple[int | None, ...]

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(1 if d is None else self.extents[d] for d in self.dims)

    @property
    def identity(self) -> Any:
        return "box", id(self.tensor), self.start, self.extents, self.dims


@dataclass(frozen=True)
class Onloaded:
    """Made when its turn comes, and released. key: what says that two of them are one."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    load: Callable[[], torch.Tensor]
    key: Any = None

    @property
    def identity(self) -> Any:
        return self.key


@dataclass(frozen=True)
class Missing:
    reason: str


Source = Union[InFile, InMemory, PartOfSpread, Onloaded, Missing]


def nbytes(source: Source) -> int:
    assert not isinstance(source, Missing)
    return math.prod(source.shape) * source.dtype.itemsize


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor by name only, made of others: a DTensor, a quantised one."""
    return hasattr(tensor, "__tensor_flatten__") or is_spread(tensor)


def is_spread(tensor: torch.Tensor) -> bool:
    """A DTensor: processes have parts of it."""
    return hasattr(tensor, "device_mesh")


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


class Files:
    """Files that tensors lie in, each opened once. Their real paths are kept: what a relative one means may change."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[Checkpoint | Error, str]] = {}
        self._keys: dict[int, set[str]] = {}

    def has(self, mapping: Mapping[str, Any], key: str) -> bool:
        """Without asking for the value, as `in` does of mappings that say nothing else."""
        if type(mapping).__contains__ is not Mapping.__contains__:
            return key in mapping
        if id(mapping) not in self._keys:
            self._keys[id(mapping)] = set(mapping)
        return key in self._keys[id(mapping)]

    def of_safetensors(self, path: Any, name: Any, dtype: torch.dtype | None) -> InFile | Missing:
        if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path) or not isinstance(name, str):
            return Missing(f"the index has no path and name for it, but {path!r} and {name!r}")
        real = os.path.realpath(path)
        if real not in self._opened:
            version = _core.file_version(real)
            try:
                self._opened[real] = open_checkpoint(real), version
            except Error as error:
                self._opened[real] = error, version
        opened, version = self._opened[real]
        if isinstance(opened, Error):
            told = "" if os.path.isabs(path) else f"; the path is relative ('{path}'), and the working directory may be another one now"
            return Missing(f"{opened}{told}")
        if name not in opened:
            return Missing(f"{real} has no tensor '{name}'")
        tensor = opened[name]
        found = opened._core.extent(tensor._id)
        if opened.format != "safetensors" or (found is not None and os.path.realpath(found[0]) != real):
            return Missing(f"{real} is not one file of safetensors")
        stored = None if found is None else getattr(torch, found[4], None)
        if found is None or stored is None:
            return Missing(f"{real}: torch has no type for '{name}'")
        return InFile(os.path.realpath(found[0]), found[1], version, found[2], stored, dtype or stored, tensor.shape, contiguous_strides(tensor.shape))

    def of_dat(self, folder: str, key: str, info: Mapping[str, Any]) -> InFile | Missing:
        path = os.path.realpath(os.path.join(folder, f"{key}.dat"))
        dtype, shape = dtype_named(info.get("dtype")), info.get("shape", ())
        if dtype is None:
            return Missing(f"{path}: torch has no type '{info.get('dtype')}'")
        if not isinstance(shape, Sequence) or not all(type(extent) is int and extent >= 0 for extent in shape):
            return Missing(f"{path}: the index has no shape for it, but {shape!r}")
        shape = tuple(shape)
        wanted = math.prod(shape) * dtype.itemsize
        version = _core.file_version(path)
        try:
            found = os.stat(path)
        except OSError as error:
            return Missing(f"{path}: {error.strerror}")
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        if size < wanted:
            return Missing(f"{path} has {size} bytes, and the index of its folder says {wanted}: another model was offloaded there")
        return InFile(path, size, version, 0, dtype, dtype, shape, contiguous_strides(shape))


def dtype_named(name: Any) -> torch.dtype | None:
    found = getattr(torch, name, None) if isinstance(name, str) else None
    return found if isinstance(found, torch.dtype) else None


def hooks_of(module: torch.nn.Module) -> list[Any]:
    """Hooks of a module that have weights, the one that has the last word first."""
    def flat(hook: Any) -> Iterator[Any]:
        for inner in getattr(hook, "hooks", None) or [hook]:
            yield from flat(inner) if inner is not hook and hasattr(inner, "hooks") else [inner]
    hook = getattr(module, "_hf_hook", None)
    return [] if hook is None else [h for h in reversed(list(flat(hook))) if getattr(h, "weights_map", None) is not None]


def is_loader(mapping: Any) -> bool:
    """accelerate's OffloadedWeightsLoader, or one like it."""
    return all(hasattr(mapping, name) for name in ("index", "state_dict", "save_folder"))


def unprefixed(mapping: Any, key: str) -> tuple[Any, str]:
    """Through accelerate's PrefixedDataset: what it reads from, and under which key."""
    while hasattr(mapping, "dataset") and hasattr(mapping, "prefix"):
        mapping, key = mapping.dataset, f"{mapping.prefix}{key}"
    return mapping, key


def resolve(mapping: Any, key: str, files: Files) -> Source | None:
    """None: the key is not there."""
    mapping, key = unprefixed(mapping, key)
    if is_loader(mapping):
        if key not in mapping.state_dict:
            return _of_entry(mapping, key, files)
        mapping = mapping.state_dict
    if isinstance(mapping, dict):
        value = mapping.get(key)
        return InMemory(value) if isinstance(value, torch.Tensor) and value.device.type != "meta" else None
    if not isinstance(mapping, Mapping) or not files.has(mapping, key):
        return None
    return Onloaded(torch.float32, (), lambda: mapping[key])  # type and shape are those of the model's tensor


def _of_entry(loader: Any, key: str, files: Files) -> Source | None:
    info = loader.index.get(key)
    if info is None:
        return None
    if not isinstance(info, Mapping):
        return Missing(f"its entry in the index is {info!r}")
    path = info.get("safetensors_file")
    if path is None:
        return None if loader.save_folder is None else files.of_dat(loader.save_folder, key, info)
    wanted = dtype_named(info.get("dtype"))
    if wanted is None and info.get("dtype") is not None:
        return Missing(f"torch has no type '{info['dtype']}', which the index says it has")
    found = files.of_safetensors(path, info.get("weight_name", key), wanted)
    if isinstance(found, InFile) and found.stored != found.dtype and not (found.stored.is_floating_point and found.dtype.is_floating_point):
        return Onloaded(found.dtype, found.shape, lambda: loader[key], found.identity)
    return found


def owners(model: torch.nn.Module, name: str) -> list[tuple[torch.nn.Module, str]]:
    """Modules that a tensor of the state dict lies in, the innermost first, with its name in each."""
    parts, module = name.split("."), model
    chain = [(model, name)]
    for i, part in enumerate(parts[:-1]):
        found = module._modules.get(part)
        if found is None:
            break  # what the state dict calls so has another name in the model
        module = found
        chain.append((module, ".".join(parts[i + 1:])))
    return chain[::-1]


def source_of(model: torch.nn.Module, name: str, value: torch.Tensor, files: Files) -> Source | None:
    """None: no hook has it."""
    if value.device.type != "meta":
        return InMemory(value)  # also where a hook has a copy: this one is the truth now
    for module, key in owners(model, name):
        for hook in hooks_of(module):
            # PEFT puts what it wraps one level deeper; a hook above knows the old name.
            for known in dict.fromkeys((key, key.replace("base_layer.", ""))):
                found = resolve(hook.weights_map, known, files)
                if found is not None:
                    return _checked(found, value)
    return None


def _checked(source: Source, value: torch.Tensor) -> Source:
    """A source that is not what the model says it is is another model's."""
    if isinstance(source, Onloaded) and source.key is None:
        return Onloaded(value.dtype, tuple(value.shape), source.load, ("object", id(value)))
    if isinstance(source, Missing) or (source.dtype == value.dtype and source.shape == tuple(value.shape)):
        return source
    place = f"{source.path} holds" if isinstance(source, InFile) else "what its hook has is"
    return Missing(f"the model wants {value.dtype} {list(value.shape)}, and {place} {source.dtype} {list(source.shape)}: another model's")


def sources_of(model: torch.nn.Module, state: Mapping[str, torch.Tensor], ties: Mapping[str, str]) -> dict[str, Source]:
    """Of every tensor of a state dict with its variables (keep_vars=True). ties: declared ones, for names that no hook knows."""
    files = Files()
    found = {name: source_of(model, name, value, files) for name, value in state.items()}
    by_object = {id(state[name]): name for name, source in found.items() if source is not None and not isinstance(source, Missing)}
    out: dict[str, Source] = {}
    for name, source in found.items():
        if source is None:
            other = by_object.get(id(state[name])) or ties.get(name)
            source = found.get(other) if other is not None else None
        out[name] = source if source is not None else Missing(_no_hook(name))
    return out


def _no_hook(name: str) -> str:
    if any(part.startswith(("lora_", "adapter")) for part in name.split(".")):
        return ("it is an adapter's, made on the meta device because the model it was added to is offloaded: it never had values. "
                "Load the model without offloading it before adapters are added, or give it values first")
    return "it is on the meta device, and no hook knows its bytes: the hook that had them was replaced or removed"
