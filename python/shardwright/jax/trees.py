"""Trees as Orbax keeps them: what each leaf is, on which way it lies, and where it was."""
from __future__ import annotations

import base64
import functools
import json
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from ..dtypes import widened
from ..errors import InvalidArgumentError, UnsupportedError


def of_orbax(tree: Any) -> tuple[dict[str, Any], str]:
    """The arrays by name, and the rest of the tree as Orbax's format takes it (its option "tree"): dicts, lists, tuples and attributes, empty nodes,
    None, text, numbers of Python, typed PRNG keys, and shardings. InvalidArgumentError when two leaves have one name, as {"a": {"b": ...}, "a.b": ...}."""
    arrays: dict[str, Any] = {}
    leaves: list[Any] = []
    kept: dict[str, dict[str, Any]] = {"sharding": {}, "strings": {}, "random_keys": {}, "types": {}}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_empty)[0]:
        path = [_step(key) for key in keys]
        name = ".".join(key if isinstance(key, str) else key[0] for key in path)
        empty = _empty_type(leaf)
        if empty is not None:
            leaves.append([path, empty, True])
            continue
        if isinstance(leaf, str):
            leaves.append([path, "string", False])
            kept["strings"][name] = leaf
            continue
        if name in arrays:
            raise InvalidArgumentError("two leaves have one name", tensor=name, hint="Orbax would store one array for both: rename one of them")
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            kept["random_keys"][name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        leaf, small = widened(leaf)
        if small is not None:
            kept["types"][name] = small
        arrays[name] = np.asarray(leaf) if isinstance(leaf, (bool, int, float)) else leaf
        leaves.append([path, _array_type(leaf), False])
        sharding = getattr(leaf, "sharding", None)
        text = _sharding_text(sharding) if isinstance(sharding, NamedSharding) else None
        if text is None and name in kept["random_keys"] and isinstance(sharding, SingleDeviceSharding):
            # Typed keys are arrays of JAX wherever they are; others of one device are written as NumPy's, which need none.
            text = json.dumps({"sharding_type": "SingleDeviceSharding", "device_str": str(next(iter(sharding.device_set)))})
        if text is not None:
            kept["sharding"][base64.urlsafe_b64encode(name.encode()).decode()] = text
            leaves[-1].append(list(sharding.shard_shape(leaf.shape)))
    return arrays, json.dumps({"items": {"": {"leaves": leaves, **{key: value for key, value in kept.items() if value}}}})


def _is_empty(node: Any) -> bool:
    return _empty_type(node) is not None


def _empty_type(node: Any) -> str | None:
    """Orbax's word for a node without leaves; None for others. A named tuple without fields is nothing to it."""
    if node is None or (isinstance(node, tuple) and not node and hasattr(node, "_fields")):
        return "None"
    names = {dict: "Dict", list: "List", tuple: "Tuple"}
    return names.get(type(node)) if isinstance(node, (dict, list, tuple)) and not node else None


def _step(key: Any) -> str | list[str]:
    """A key of a dict or an attribute as text, an index as a list of one text."""
    if isinstance(key, jax.tree_util.DictKey):
        return str(key.key)
    if isinstance(key, jax.tree_util.GetAttrKey):
        return str(key.name)
    if isinstance(key, jax.tree_util.SequenceKey):
        return [str(key.idx)]
    if isinstance(key, jax.tree_util.FlattenedIndexKey):
        return [str(key.key)]
    raise UnsupportedError("Orbax has no such step in a tree", found=repr(key))


def _array_type(leaf: Any) -> str:
    if isinstance(leaf, jax.Array):
        return "jax.Array"
    return "scalar" if isinstance(leaf, (bool, int, float, np.generic)) else "np.ndarray"


@functools.lru_cache(maxsize=4096)
def _sharding_text(sharding: NamedSharding) -> str | None:
    """As Orbax notes it. None for what it has no words for."""
    if any(axes is PartitionSpec.UNCONSTRAINED for axes in sharding.spec):
        return None
    mesh = sharding.mesh

    def ids(devices: Any) -> Any:
        return [ids(row) for row in devices] if isinstance(devices, np.ndarray) else {"id": devices.id}
    return json.dumps({
        "sharding_type": "NamedSharding", "shape": list(mesh.devices.shape), "axis_names": list(mesh.axis_names),
        "axis_types": [f"AxisType.{kind.name}" for kind in mesh.axis_types],
        "partition_spec": [list(axes) if isinstance(axes, tuple) else axes for axes in sharding.spec],
        "device_mesh": {"mesh": ids(mesh.devices)}})
