"""Trees of JAX arrays into checkpoints."""
from __future__ import annotations

import os
from typing import Any

import jax

from ..errors import InvalidArgumentError
from ..saving import CopySummary
from ..saving import save as _save


def save(path: str | os.PathLike[str], tree: Any, **options: Any) -> CopySummary:
    """Saves a tree of arrays, each under the names on its way joined by '.'. Sharded arrays are written shard by shard; with jax.distributed
    every process calls this with the same tree, and writes what it holds.

    options: those of shardwright.save().
    """
    named: dict[str, Any] = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(keys, simple=True, separator=".")
        if name in named:
            raise InvalidArgumentError("two leaves have one name", tensor=name)
        named[name] = leaf
    return _save(path, named, **options)
