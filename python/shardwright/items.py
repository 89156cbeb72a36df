"""Small trees beside the tensors of a step, each a directory in the step, as Orbax writes one: text in one file, arrays in one file each."""
from __future__ import annotations

import json
from typing import Any

import numpy as np

from .errors import InvalidArgumentError, UnsupportedError
from .tree import flatten, stored_of

TREE = "shardwright.tree.json"
_RESERVED = ("metrics", "iterator", "commit_success.txt", "descriptor", "shardwright.manifest.json")


def check_name(name: Any) -> None:
    """InvalidArgumentError for what no item of a step can be called."""
    if not isinstance(name, str) or name in _RESERVED or not name or "/" in name or name[0] in "._" or not name.isprintable():
        raise InvalidArgumentError("an item cannot be called so", found=repr(name), expected=f"a plain name other than {', '.join(_RESERVED)}")


def files_of_item(name: str, tree: Any) -> list[tuple[str, str | bytes]]:
    """Files, by their keys in the step. InvalidArgumentError for a name that is taken, UnsupportedError for types that zarr has not."""
    check_name(name)
    if not isinstance(tree, (dict, list, tuple)):
        raise InvalidArgumentError(f"the item '{name}' is no tree", found=type(tree).__name__, expected="a dict, a list or a tuple")
    stored = stored_of(tree)
    files: list[tuple[str, str | bytes]] = [(f"{name}/_METADATA", _metadata(stored.leaves))]
    if stored.strings:
        files.append((f"{name}/_strings.json", json.dumps(stored.strings)))
    if stored.kinds:
        files.append((f"{name}/{TREE}", json.dumps({"version": 1, **stored.kinds})))
    wanted = {source.name for source in stored.sources}
    for leaf in flatten(tree)[0]:
        if leaf.name in wanted:
            files += _array(f"{name}/{leaf.name}", np.asarray(leaf.value))
    return files


def _metadata(leaves: list[Any]) -> str:
    entries = {}
    for path, kind, skipped, *_ in leaves:
        keys = [(key[0], 1) if isinstance(key, list) else (key, 2) for key in path]
        entries[repr(tuple(key for key, _ in keys))] = {
            "key_metadata": [{"key": key, "key_type": kind_of_key} for key, kind_of_key in keys],
            "value_metadata": {"value_type": "np.ndarray" if kind == "jax.Array" else kind, "skip_deserialize": skipped}}
    return json.dumps({"tree_metadata": entries, "use_ocdbt": False, "use_zarr3": False, "store_array_data_equal_to_fill_value": True,
                       "custom_metadata": None})


def _array(key: str, array: np.ndarray[Any, Any]) -> list[tuple[str, str | bytes]]:
    """As zarr 2 has it, in one piece."""
    if array.dtype.isbuiltin != 1 or array.dtype.hasobject:
        raise UnsupportedError("an array beside the tensors has a type that NumPy alone does not know", tensor=key, found=str(array.dtype))
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).reshape(array.shape)
    about = {"chunks": [max(extent, 1) for extent in array.shape], "compressor": None, "dimension_separator": ".", "dtype": array.dtype.str,
             "fill_value": None, "filters": None, "order": "C", "shape": list(array.shape), "zarr_format": 2}
    content = [(f"{key}/{'.'.join('0' * max(array.ndim, 1))}", array.tobytes())] if array.size else []
    return [(f"{key}/.zarray", json.dumps(about)), *content]
