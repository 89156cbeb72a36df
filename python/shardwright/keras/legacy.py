"""Names in the .h5 files of Keras 2, which Keras 3 still writes: groups by the names of layers, in them the paths of variables."""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_NUMBERED = re.compile(r"(.*?)(?:_(\d+))?", re.DOTALL)
# What model.save("x.h5") writes beside the weights, and has no part in load_weights().
_NO_WEIGHTS = ("optimizer_weights", "top_level_model_weights")


def legacy_names(model: Any, plain: Iterable[str], names: dict[int, str]) -> tuple[dict[str, str], list[str]]:
    """Which weight each tensor of such a file is meant for: by the name of its layer, and by its own within that. Numbers at the end of
    names, which differ from one process to the next, count by their order only.

    plain: names of the tensors. names: id of a variable -> its name in files of Keras 3. Returns names of tensors -> names in files of
    Keras 3, and tensors that are no weights.
    """
    groups: dict[str, list[str]] = {}
    others: list[str] = []
    for name in plain:
        parts = name.split("/")
        if parts[0] in _NO_WEIGHTS:
            others.append(name)
            continue
        groups.setdefault(parts[1] if parts[0] == "model_weights" and len(parts) > 2 else parts[0], []).append(name)
    layers = {layer.name: weights for layer in getattr(model, "layers", []) if (weights := _weights(layer))}
    mapped: dict[str, str] = {}
    for layer, group in _pairs(list(layers), list(groups)):
        for variable, tensor in _assign(layers[layer], groups[group]):
            if id(variable) in names:
                mapped[tensor] = names[id(variable)]
    return mapped, others


def _weights(layer: Any) -> list[Any]:
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _split(name: str) -> tuple[str, int]:
    """"dense_3:0" -> "dense", 3."""
    stem, number = _NUMBERED.fullmatch(name.split(":")[0]).groups()  # type: ignore[union-attr]
    return stem, int(number or 0)


def _pairs(wanted: list[str], found: list[str]) -> Iterator[tuple[str, str]]:
    """Names that are equal; and where none are, those of one stem in the order of their numbers."""
    equal = set(wanted) & set(found)
    yield from ((name, name) for name in wanted if name in equal)
    by_stem: dict[str, list[str]] = {}
    for name in sorted((name for name in found if name not in equal), key=_split):
        by_stem.setdefault(_split(name)[0], []).append(name)
    for name in sorted((name for name in wanted if name not in equal), key=_split):
        if left := by_stem.get(_split(name)[0]):
            yield name, left.pop(0)


def _assign(weights: list[Any], tensors: list[str]) -> Iterator[tuple[Any, str]]:
    """Each variable the tensor whose path ends as its own does, in as many parts as it takes to tell."""
    left = sorted(tensors, key=lambda tensor: [_split(part) for part in tensor.split("/")])
    for variable in weights:
        path = _stems(variable.path)
        candidates = left
        for length in range(1, len(path) + 1):
            narrower = [tensor for tensor in candidates if _stems(tensor)[-length:] == path[-length:]]
            if not narrower:
                break
            candidates = narrower
            if len(candidates) == 1:
                break
        if candidates and _stems(candidates[0])[-1:] == path[-1:]:
            left.remove(candidates[0])
            yield variable, candidates[0]


def _stems(path: str) -> list[str]:
    return [_split(part)[0] for part in path.split("/")]
