"""Names in the .h5 files of Keras 2, which Keras 3 still writes: layers by their names, variables in the order they had in the layer."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# What model.save("x.h5") writes beside the weights, and has no part in load_weights().
_NO_WEIGHTS = ("optimizer_weights", "top_level_model_weights")


def legacy_names(model: Any, plain: Iterable[str], names: dict[int, str]) -> tuple[dict[str, str], list[str]]:
    """Which weight each tensor of such a file is meant for: the k-th layer that has weights for the k-th group that has tensors, as
    Keras itself does it, and their variables in order.

    plain: names of the tensors, in the file's order. names: id of a variable -> its name in files of Keras 3. Returns names of tensors
    -> names in files of Keras 3, and tensors that are no weights. Nothing is mapped when the numbers of layers differ.
    """
    groups: dict[str, list[str]] = {}
    others: list[str] = []
    for name in plain:
        parts = name.split("/")
        if parts[0] in _NO_WEIGHTS:
            others.append(name)
            continue
        groups.setdefault(parts[1] if parts[0] == "model_weights" and len(parts) > 2 else parts[0], []).append(name)
    layers = [weights for weights in map(_weights, getattr(model, "layers", [])) if weights]
    mapped: dict[str, str] = {}
    if len(layers) == len(groups):
        for weights, tensors in zip(layers, groups.values()):
            for variable, tensor in zip(weights, _in_order(weights, tensors)):
                if id(variable) in names:
                    mapped[tensor] = names[id(variable)]
    return mapped, others


def _weights(layer: Any) -> list[Any]:
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _in_order(weights: list[Any], tensors: list[str]) -> list[str]:
    """The tensors as the variables stand: by their last names where these are clear, else as the file has them."""
    last = [tensor.rsplit("/", 1)[-1].split(":")[0] for tensor in tensors]
    wanted = [variable.name for variable in weights]
    if len(set(last)) == len(last) and sorted(last) == sorted(wanted):
        return [tensors[last.index(name)] for name in wanted]
    return tensors
