"""Trees of JAX arrays into checkpoints."""
from __future__ import annotations

import os
from typing import Any

import jax

from ..errors import InvalidArgumentError
from ..saving import CopySummary
from ..saving import save as _save
from .trees import of_orbax


def save(path: str | os.PathLike[str], tree: Any, **options: Any) -> CopySummary:
    """Saves a tree of arrays, each under the names on its way joined by '.'. Sharded arrays are written shard by shard; with jax.distributed
    every process calls this with the same tree, and writes what it holds.

    With format="orbax" the tree itself is kept as Orbax keeps it: dicts, lists and tuples, empty nodes, None, text, numbers, typed PRNG keys, and
    the NamedShardings of arrays, by which their chunks are cut. Orbax restores it without being told anything.

    options: those of shardwright.save().
    """
    if options.get("format") == "orbax":
        arrays, text = of_orbax(tree)
        return _save(path, arrays, **{**options, "options": {"tree": text, **(options.get("options") or {})}})
    named: dict[str, Any] = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(keys, simple=True, separator=".")
        if name in named:
            raise InvalidArgumentError("two leaves have one name", tensor=name)
        named[name] = leaf
    return _save(path, named, **options)
