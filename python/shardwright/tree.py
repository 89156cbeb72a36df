"""Nested dicts, lists and tuples of arrays, as checkpoints hold them: named leaves, and a note of what the tree was.

A leaf's name is its keys joined by '.', as Orbax has it. No framework is imported here; classes that JAX knows as nodes are taken apart by it.
"""
from __future__ import annotations

import base64
import json
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrays import Source, source_of
from .dtypes import Array, numpy_dtype, stored_name, widened
from .errors import CorruptError, InvalidArgumentError, UnsupportedError

Path = tuple[tuple[str, bool], ...]
"""Keys from the root, each with whether it counts the items of a sequence."""

_EMPTY = {"Dict": dict, "List": list, "Tuple": tuple}
_DEEPEST = 256


@dataclass(frozen=True, slots=True)
class Leaf:
    path: Path
    value: Any

    @property
    def name(self) -> str:
        return ".".join(key for key, _ in self.path)


def flatten(tree: Any) -> tuple[list[Leaf], Callable[[list[Any]], Any]]:
    """Leaves in order, and what puts a tree like this one together from as many other leaves.

    Dicts, lists, tuples and named tuples are nodes, and what is registered with JAX; None, text, and empty containers are leaves.
    InvalidArgumentError for two leaves of one name ({"a": {"b": x}, "a.b": y}): only one could be stored; for keys that are no Unicode, and for trees
    that are too deep, as one that holds itself is.
    """
    leaves: list[Leaf] = []
    build = _flatten(tree, (), leaves)
    seen: dict[str, Path] = {}
    for leaf in leaves:
        if not is_unicode(leaf.name):
            raise InvalidArgumentError("a key of the tree has half a surrogate pair, which no file can hold", tensor=ascii(leaf.name))
        if leaf.name in seen:
            raise InvalidArgumentError("two leaves of the tree have one name", tensor=leaf.name,
                                       found=f"{[key for key, _ in seen[leaf.name]]} and {[key for key, _ in leaf.path]}")
        seen[leaf.name] = leaf.path

    def rebuild(values: list[Any]) -> Any:
        return build(iter(values))
    return leaves, rebuild


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _flatten(node: Any, path: Path, leaves: list[Leaf]) -> Callable[[Iterator[Any]], Any]:
    if len(path) > _DEEPEST:
        begins = ".".join(key for key, _ in path[:8])
        raise InvalidArgumentError(f"the tree has more than {_DEEPEST} levels, or holds itself", tensor=f"{begins}. ...")
    try:
        nodes = _children(node)
    except UnsupportedError as error:
        error.tensor = ".".join(key for key, _ in path) or None
        raise
    if nodes is None:
        leaves.append(Leaf(path, node))
        return next
    children, build = nodes
    builders = [_flatten(child, (*path, (key, sequence)), leaves) for (key, sequence), child in children]

    def rebuild(values: Iterator[Any]) -> Any:
        return build([builder(values) for builder in builders])
    return rebuild


def _children(node: Any) -> tuple[list[tuple[tuple[str, bool], Any]], Callable[[list[Any]], Any]] | None:
    """Of one level; None for a leaf."""
    if isinstance(node, dict) and node:
        return _children_of_mapping(node)
    if isinstance(node, tuple) and node and hasattr(node, "_fields"):
        return [((name, False), value) for name, value in zip(node._fields, node)], lambda values: type(node)(*values)
    if isinstance(node, (list, tuple)) and node:
        sequence = tuple if isinstance(node, tuple) else list
        return [((str(i), True), value) for i, value in enumerate(node)], lambda values: sequence(values)
    by_jax = _children_by_jax(node)
    return _children_of_mapping(node) if by_jax is None and isinstance(node, Mapping) and node else by_jax


def _children_of_mapping(node: Mapping[Any, Any]) -> tuple[list[tuple[tuple[str, bool], Any]], Callable[[list[Any]], Any]]:
    keys, kind = list(node), OrderedDict if isinstance(node, OrderedDict) else dict
    return [((_key(key), False), node[key]) for key in keys], lambda values: kind(zip(keys, values))


def _key(key: Any) -> str:
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise UnsupportedError("a key of a dict is text or a whole number", found=repr(key))
    return str(key)


def _children_by_jax(node: Any) -> tuple[list[tuple[tuple[str, bool], Any]], Callable[[list[Any]], Any]] | None:
    """Of classes that are registered with JAX (optimizer states, modules)."""
    jax = sys.modules.get("jax")
    if jax is None or node is None or isinstance(node, (str, bytes, dict, list, tuple, np.ndarray, int, float)):
        return None
    pairs, structure = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda other: other is not node)
    if jax.tree_util.treedef_is_leaf(structure):
        return None
    return [(_key_of_jax(keys), value) for keys, value in pairs], structure.unflatten


def _key_of_jax(keys: tuple[Any, ...]) -> tuple[str, bool]:
    (key,) = keys
    for name, sequence in (("name", False), ("idx", True), ("key", False)):
        if hasattr(key, name):
            return str(getattr(key, name)), sequence
    return str(key), False


# ---- what is stored

@dataclass
class Stored:
    """A tree as it is saved: arrays by name, and the rest as text. document: leaves [path, type, nothing stored, shape written at once], with
    shardings, texts, and which arrays are random keys or integers of less than a byte; as the format "orbax" keeps it, and as
    state/shardwright.tree.json says it elsewhere.
    kinds: what that has no words for, in state/shardwright.tree.json always: tuples, keys that are numbers, and which arrays are PyTorch's."""

    sources: list[Source] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)
    strings: dict[str, str] = field(default_factory=dict)
    random_keys: dict[str, str] = field(default_factory=dict)
    sharding: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    containers: list[Any] = field(default_factory=list)
    torch: list[str] = field(default_factory=list)
    only_jax: bool = True  # nothing can write to any of the arrays
    any_jax: bool = False

    @property
    def document(self) -> dict[str, Any]:
        parts = {"leaves": self.leaves, "sharding": self.sharding, "strings": self.strings, "random_keys": self.random_keys, "types": self.types}
        return {name: part for name, part in parts.items() if part or name == "leaves"}

    @property
    def kinds(self) -> dict[str, Any]:
        parts = {"containers": self.containers, "torch": self.torch}
        return {name: part for name, part in parts.items() if part}


def stored_of(tree: Any) -> Stored:
    """What there is to save. Values are neither copied nor read. Errors name the leaf."""
    leaves, _ = flatten(tree)
    out = Stored()
    for leaf in leaves:
        _store(leaf.name, _written(leaf.path), leaf.value, out)
    _note_containers(tree, (), out.containers)
    return out


def _written(path: Path) -> list[Any]:
    return [[key] if sequence else key for key, sequence in path]


def _note_containers(node: Any, path: Path, out: list[Any]) -> None:
    """[path, "tuple"], [path, "named", type, fields], [path, "keys", keys]: of those that are neither lists nor dicts whose keys are text."""
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        out.append([_written(path), "named", f"{type(node).__module__}:{type(node).__qualname__}", list(node._fields)])
    elif isinstance(node, tuple):
        out.append([_written(path), "tuple"])
    elif isinstance(node, Mapping) and any(isinstance(key, int) for key in node):
        out.append([_written(path), "keys", [int(key) if isinstance(key, int) else key for key in node]])
    for key, child in (_children(node) or ((), None))[0]:
        _note_containers(child, (*path, key), out)


def _store(name: str, path: list[Any], value: Any, out: Stored) -> None:
    if value is None:
        out.leaves.append([path, "None", True])
    elif isinstance(value, str):
        out.leaves.append([path, "string", False])
        if not is_unicode(value):
            raise InvalidArgumentError("a text has half a surrogate pair, which no file can hold", tensor=name, found=ascii(value)[:80])
        out.strings[name] = value
    elif isinstance(value, (dict, list, tuple)) and len(value) == 0:
        kind = "Dict" if isinstance(value, dict) else "List" if isinstance(value, list) else "Tuple"
        out.leaves.append([path, kind, True])
    elif isinstance(value, (bool, int, float, np.generic)):
        out.leaves.append([path, "scalar", False])
        out.sources.append(source_of(name, _scalar(name, value)))
    elif is_jax(value):
        _store_jax(name, path, value, out)
    else:
        value = _whole_bytes(name, value, out)
        out.sources.append(source_of(name, value))
        out.leaves.append([path, "np.ndarray", False])
        out.only_jax = False
        if is_torch(value):
            out.torch.append(name)


def _whole_bytes(name: str, value: Any, out: Stored) -> Any:
    value, small = widened(value)
    if small is not None:
        out.types[name] = small
    return value


def _scalar(name: str, value: Any) -> Array:
    try:
        return np.asarray(value, np.bool_ if isinstance(value, bool) else np.int64 if isinstance(value, int) else
                          np.float64 if type(value) is float else value.dtype)
    except OverflowError:
        raise UnsupportedError("a number is too large for 64 bits", tensor=name, found=str(value)) from None


def is_jax(value: Any) -> bool:
    """A jax.Array, without importing JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def is_torch(value: Any) -> bool:
    """A torch.Tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_random_key(value: Any) -> bool:
    """A typed key of JAX, or what says that there is to be one."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, (jax.Array, jax.ShapeDtypeStruct)):
        return False
    return bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def _store_jax(name: str, path: list[Any], value: Any, out: Stored) -> None:
    jax = sys.modules["jax"]
    out.any_jax = True
    if is_random_key(value):
        out.random_keys[name] = str(jax.random.key_impl(value))
        value = jax.random.key_data(value)
    value = _whole_bytes(name, value, out)
    out.sources.append(source_of(name, value))
    leaf = [path, "jax.Array", False]
    try:
        shape = list(value.sharding.shard_shape(value.shape))
    except (ValueError, IndexError):
        shape = list(value.shape)
    if shape:
        leaf.append(shape)
    out.leaves.append(leaf)
    text = _sharding_text(value.sharding)
    if text is not None:
        out.sharding[base64.urlsafe_b64encode(name.encode()).decode()] = text


def _sharding_text(sharding: Any) -> str | None:
    """As Orbax notes it; None for kinds that it does not know."""
    kind = type(sharding).__name__
    if kind == "SingleDeviceSharding":
        (device,) = sharding.device_set
        return json.dumps({"sharding_type": kind, "device_str": str(device)})
    if kind != "NamedSharding":
        return None
    mesh = sharding.mesh
    ids = np.vectorize(lambda device: device.id, otypes=[object])(mesh.devices)

    def nested(values: Any) -> Any:
        return [nested(v) for v in values] if isinstance(values, list) else {"id": values}
    spec = [list(axes) if isinstance(axes, tuple) else axes for axes in sharding.spec]
    return json.dumps({"sharding_type": kind, "shape": list(mesh.devices.shape), "axis_names": list(mesh.axis_names),
                       "axis_types": [f"AxisType.{t.name}" for t in mesh.axis_types], "partition_spec": spec,
                       "device_mesh": {"mesh": nested(ids.tolist())}})


# ---- what is restored

@dataclass(frozen=True)
class Note:
    """A leaf of a stored tree."""

    path: Path
    kind: str
    has_array: bool
    text: str | None
    random_key: str | None
    torch: bool = False
    small: str | None = None  # "int4": its dtype, stored as int8

    @property
    def name(self) -> str:
        return ".".join(key for key, _ in self.path)


@dataclass(frozen=True)
class Noted:
    """A stored tree: its leaves, and what its containers are, by their paths."""

    notes: list[Note]
    containers: Mapping[Path, Container] = field(default_factory=dict)

    def tree(self, arrays: Mapping[str, Any], at: Path = ()) -> Any:
        """What was saved at a path, of arrays by name."""
        below = [(note.path[len(at):], value_of(note, arrays.get(note.name))) for note in self.below(at)]
        return _unflatten(below, at, self.containers)

    def below(self, at: Path) -> list[Note]:
        return [note for note in self.notes if note.path[:len(at)] == at]


@dataclass(frozen=True)
class Container:
    """A tuple (keys: its fields, if it is a named one of that type), or a dict whose keys are not all text."""

    kind: str
    type: str
    keys: tuple[Any, ...]

    def of(self, children: Mapping[str, Any]) -> Any:
        """CorruptError when those are others."""
        keys = tuple(map(str, range(len(children)))) if self.kind == "tuple" else self.keys
        if {str(key) for key in keys} != set(children) or len(keys) != len(children):
            raise CorruptError("the note of a tree does not fit its leaves", found=", ".join(children), expected=", ".join(map(str, keys)))
        values = [children[str(key)] for key in keys]
        return tuple(values) if self.kind == "tuple" else _named(self.type, self.keys, values) if self.kind == "named" else dict(zip(keys, values))


def _named(name: str, fields: tuple[str, ...], values: list[Any]) -> Any:
    """Of the class that was saved where it is loaded, or of one like it: nothing is imported because a file says so."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and getattr(found, "_fields", None) == fields):
        found = namedtuple(_last_part(name), fields, rename=True)  # type: ignore[misc]
    return found._make(values)


def _last_part(name: str) -> str:
    return name.rpartition(":")[2].rpartition(".")[2]


def noted_of(document: Mapping[str, Any], kinds: Mapping[str, Any]) -> Noted:
    """CorruptError for what are no such documents."""
    try:
        strings, keys, torch = document.get("strings", {}), document.get("random_keys", {}), set(kinds.get("torch", ()))
        types = document.get("types", {})
        notes = []
        for path, kind, skipped, *_ in document["leaves"]:
            keyed = _read_path(path)
            name = ".".join(key for key, _ in keyed)
            notes.append(Note(keyed, kind, not skipped and kind != "string", strings.get(name), keys.get(name), name in torch, _small(types.get(name))))
        containers = {_read_path(path): _container_of(kind, *more) for path, kind, *more in kinds.get("containers", ())}
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise CorruptError("the note of a tree cannot be read", found=f"{type(error).__name__}: {error}") from None
    return Noted(notes, containers)


def _small(name: Any) -> str | None:
    if name is not None and stored_name(name) == name:
        raise ValueError(name)
    return name


def _read_path(path: list[Any]) -> Path:
    return tuple((key[0], True) if isinstance(key, list) else (key, False) for key in path)


def _container_of(kind: str, *more: Any) -> Container:
    """ValueError, or whatever else is raised, for what is none."""
    if kind == "tuple":
        return Container(kind, "", ())
    if kind == "named":
        name, fields = more
        namedtuple(_last_part(name), fields, rename=True)  # whether they can be
        return Container(kind, name, tuple(fields))
    (keys,) = more
    if kind != "keys" or not all(isinstance(key, (int, str)) for key in keys):
        raise ValueError(kind)
    return Container(kind, "", tuple(keys))


def value_of(note: Note, array: Any) -> Any:
    """A leaf as it was: `array` is what is stored of it, None for nothing."""
    if note.kind == "string":
        return note.text
    if not note.has_array:
        return _EMPTY[note.kind]() if note.kind in _EMPTY else None
    if note.random_key is not None:
        jax = sys.modules.get("jax")
        return array if jax is None else jax.random.wrap_key_data(jax.numpy.asarray(array), impl=note.random_key)
    if note.small is not None and array is not None:
        return array.astype(numpy_dtype(note.small))
    if note.kind == "scalar" and isinstance(array, np.ndarray) and array.ndim == 0:
        return array.item() if array.dtype in (np.bool_, np.int64, np.float64) else array[()]
    return array


def _unflatten(pairs: list[tuple[Path, Any]], at: Path, containers: Mapping[Path, Container]) -> Any:
    """Where nothing is said of a container it is a dict, or a list if its keys count items. A sequence of which not all are there is a dict."""
    container = containers.get(at)
    if len(pairs) == 1 and not pairs[0][0]:
        return pairs[0][1] if container is None else container.of({})
    groups: dict[tuple[str, bool], list[tuple[Path, Any]]] = {}
    for path, value in pairs:
        groups.setdefault(path[0], []).append((path[1:], value))
    children = {key: _unflatten(inner, (*at, key), containers) for key, inner in groups.items()}
    if container is not None:
        return container.of({key: value for (key, _), value in children.items()})
    wanted = [(str(i), True) for i in range(len(children))]
    if children and all(key in children for key in wanted):
        return [children[key] for key in wanted]
    return {key: value for (key, _), value in children.items()}
