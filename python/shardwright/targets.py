"""Restoring into a tree that says what each leaf is to be: everything is checked first, then each kind of array is read its own way."""
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .checkpoint import Checkpoint
from .dtypes import is_float, stored_name
from .errors import InvalidArgumentError
from .progress import Progress
from .tree import Leaf, Note, Noted, Path, is_jax, is_random_key, value_of

_MOST_NAMED = 20


class Report:
    """All that keeps a tree from being restored, said at once."""

    def __init__(self, path: str, partial: bool, cast: bool):
        self.path, self.partial, self.cast = path, partial, cast
        self.problems: list[str] = []

    def add(self, problem: str) -> None:
        self.problems.append(problem)

    def check(self) -> None:
        if not self.problems:
            return
        named = self.problems[:_MOST_NAMED]
        more = [f"and {len(self.problems) - len(named)} more"] if len(self.problems) > len(named) else []
        raise InvalidArgumentError("the checkpoint does not fit the target", path=self.path, found=f"{len(self.problems)} differences",
                                   hint="partial=True leaves out what the target does not have; `...` in its place takes what was saved; cast=True converts "
                                   "floating types",
                                   context=[*named, *more])


def fill_target(checkpoint: Checkpoint, noted: Noted, leaves: Sequence[Leaf], report: Report, memory: int, threads: int,
                progress: Progress) -> list[Any]:
    """Values for the leaves of a target, in order. InvalidArgumentError naming all that is missing, unexpected or different."""
    known = {note.name: note for note in noted.notes}
    wanted: dict[str, Any] = {}
    subtrees: dict[str, Path] = {}  # names of leaves of the target that stand for all that is there
    for leaf in leaves:
        below = [] if leaf.name in known else _subtree(noted, leaf, report)
        wanted.update({note.name: ... for note in below} or {leaf.name: leaf.value})
        if below:
            subtrees[leaf.name] = below[0].path[:len(leaf.path)]
    for name in wanted:
        if name not in known:
            report.add(f"missing in the checkpoint: '{name}'")
    for name in known:
        if name not in wanted and not report.partial:
            report.add(f"unexpected in the checkpoint: '{name}'")
    kinds: dict[str, str] = {}
    for name, value in wanted.items():
        if name in known:
            kinds[name] = _check(checkpoint, known[name], value, report)
    report.check()
    arrays: dict[str, Any] = {}
    plain = [name for name, kind in kinds.items() if kind == "host"]
    if plain:
        arrays.update(checkpoint.load(plain, memory=memory, threads=threads, progress=progress))
    placed = {name: _wish(wanted[name]) for name, kind in kinds.items() if kind == "device"}
    if placed:
        from .jax import load
        arrays.update(load(checkpoint, placed, memory=memory, threads=threads, progress=progress))
    arrays.update(_on_meshes(checkpoint, {name: wanted[name] for name, kind in kinds.items() if kind == "mesh"}, memory, threads, progress))
    arrays.update({name: _as_saved(known[name], arrays[name]) for name, value in wanted.items() if value is ... and name in arrays})
    return [noted.tree(arrays, subtrees[leaf.name]) if leaf.name in subtrees else _finish(known[leaf.name], leaf.value, arrays.get(leaf.name))
            for leaf in leaves]


def _subtree(noted: Noted, leaf: Leaf, report: Report) -> list[Note]:
    """What a leaf that is none of the checkpoint's stands for: `...` for all below its path, and so an empty container. An optimizer that has not made
    a step yet has {} where a saved one has its state."""
    if leaf.value is not ... and not _is_empty(leaf.value):
        return []
    keys = [key for key, _ in leaf.path]
    below = [note for note in noted.notes if [key for key, _ in note.path[:len(keys)]] == keys]
    if below and leaf.value is not ... and isinstance(leaf.value, dict) == below[0].path[len(keys)][1]:
        found = "a sequence" if isinstance(leaf.value, dict) else "a dict"
        report.add(f"different: '{leaf.name}' is {found} in the checkpoint, {type(leaf.value).__name__} in the target")
    return below


def _is_empty(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple)) and not hasattr(value, "_fields")


def _on_meshes(checkpoint: Checkpoint, wanted: dict[str, Any], memory: int, threads: int, progress: Progress) -> dict[str, Any]:
    """DTensors, each process its part."""
    meshes = {id(value.device_mesh): value.device_mesh for value in wanted.values()}
    arrays: dict[str, Any] = {}
    for key, mesh in meshes.items():
        from .torch import load
        placements = {name: value.placements for name, value in wanted.items() if id(value.device_mesh) == key}
        loaded = load(checkpoint, placements, mesh, memory=memory, threads=threads, progress=progress)
        arrays.update({name: tensor.to(wanted[name].dtype) for name, tensor in loaded.items()})
    return arrays


def _check(checkpoint: Checkpoint, note: Note, value: Any, report: Report) -> str:
    """How a leaf is read: "host" as a NumPy array, "device" straight onto JAX's devices, "mesh" onto one of PyTorch, "" not at all."""
    name = note.name
    if value is ...:
        return "host" if note.has_array else ""
    is_array = hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)
    if not is_array and not _is_plain(value) and not isinstance(value, (dict, list, tuple)):
        report.add(f"'{name}' is {value.__name__ if isinstance(value, type) else type(value).__name__} in the target, which is no array and no value")
        return ""
    if _is_plain(value) and not is_array and (note.kind == "scalar" or not note.has_array):
        return "host" if note.has_array else ""
    if note.has_array != (is_array or isinstance(value, (bool, int, float))) or (note.random_key and not is_array):
        report.add(f"different: '{name}' is {_kind_text(note)} in the checkpoint, {type(value).__name__} in the target")
        return ""
    if not note.has_array:
        return ""
    tensor = checkpoint[name]
    if not is_array:
        if tensor.shape != ():
            report.add(f"different: '{name}' is {list(tensor.shape)} in the checkpoint, a number in the target")
        return "host"
    if is_random_key(value):
        if note.random_key is None or tuple(tensor.shape[:len(value.shape)]) != tuple(value.shape):
            report.add(f"different: '{name}' is {_kind_text(note)} {list(tensor.shape)} in the checkpoint, a random key {list(value.shape)} in the target")
        elif _key_dtype(note.random_key) != value.dtype:
            report.add(f"different: '{name}' is a random key of '{note.random_key}' in the checkpoint, {value.dtype} in the target")
        return "host"
    if tuple(tensor.shape) != tuple(value.shape):
        report.add(f"different: '{name}' is {list(tensor.shape)} in the checkpoint, {list(value.shape)} in the target")
        return ""
    have, want = tensor.dtype.name, _dtype_name(value)
    if want not in (have, note.small) and not (report.cast and is_float(tensor.dtype) and is_float(_numpy_dtype(want))):
        report.add(f"different: '{name}' is {note.small or have} in the checkpoint, {want} in the target")
    return "device" if _is_device(value) else "mesh" if _is_dtensor(value) else "host"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, int, float, complex))


def _key_dtype(implementation: str) -> Any:
    return sys.modules["jax"].random.key(0, impl=implementation).dtype


def _is_dtensor(value: Any) -> bool:
    return hasattr(value, "device_mesh") and hasattr(value, "placements")


def _kind_text(note: Note) -> str:
    return "a random key" if note.random_key else "an array" if note.has_array else f"a {note.kind}"


def _dtype_name(value: Any) -> str:
    dtype = value.dtype.newbyteorder("=") if isinstance(value.dtype, np.dtype) else value.dtype
    return str(dtype).removeprefix("torch.")


def _numpy_dtype(name: str) -> np.dtype[Any]:
    from .dtypes import numpy_dtype
    return numpy_dtype(name)


def _is_device(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return is_jax(value) or (jax is not None and isinstance(value, jax.ShapeDtypeStruct))


def _wish(value: Any) -> Any:
    jax = sys.modules["jax"]
    sharding = value.sharding if value.sharding is not None else jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(value.shape, stored_name(value.dtype.name), sharding=sharding)


def _finish(note: Note, value: Any, array: Any) -> Any:
    """A value of the target's kind; where that is no array, the number, text or None that was saved, as it was."""
    if not note.has_array:
        return value if value == () and note.kind in ("Tuple", "NamedTuple") else value_of(note, array)  # of a type of the target's
    if _is_dtensor(value):
        return array
    if _is_device(value) and not is_random_key(value):
        return array.astype(value.dtype) if array.dtype != value.dtype else array
    if value is ... or is_random_key(value):
        return value_of(note, array)
    if _is_plain(value) and not isinstance(value, np.generic):
        found = value_of(note, array)
        return found.item() if isinstance(found, np.ndarray) else found
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_of(torch, array).to(device=value.device, dtype=value.dtype)
    array = array.astype(value.dtype, copy=False)
    return array[()] if isinstance(value, np.generic) else array


def _as_saved(note: Note, array: Any) -> Any:
    """What the target leaves open: tensors of PyTorch are such again."""
    torch = sys.modules.get("torch")
    return array if torch is None or not note.torch else _torch_of(torch, array)


def _torch_of(torch: Any, array: Any) -> Any:
    """bfloat16 and float8 pass as whole numbers of their width: NumPy and PyTorch have no common name for them."""
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view("i2" if array.dtype.itemsize == 2 else "u1")).view(getattr(torch, array.dtype.name))
