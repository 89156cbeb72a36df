"""A Keras model as what it saves: objects with variables of their own, and the path that Keras gives each of them in a file.

One private name of Keras is used, `_walk_saveable`, because which attributes it passes over is decided by the running version and
by nothing else.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras

from ..errors import InvalidArgumentError, UnsupportedError

try:
    from keras.src.saving.keras_saveable import KerasSaveable
    from keras.src.saving.saving_lib import _walk_saveable
    from keras.src.utils.naming import to_snake_case
except ImportError as _missing:
    raise UnsupportedError(f"Keras {keras.__version__} has another way of walking a model than the versions this was made for",
                           hint="Keras 3.14 and 3.15 are known to work") from _missing


@dataclass
class Saveable:
    """path: where its group of variables lies, without "vars": "layers/dense"; "" is the model itself."""

    object: Any
    path: str

    def file_name(self, key: str) -> str:
        """What the weight of this key is called in a file: "layers/dense/vars/0"."""
        return f"{self.path}/vars/{key}" if self.path else f"vars/{key}"

    @property
    def label(self) -> str | None:
        """The name that the user sees; None for objects without one."""
        name = getattr(self.object, "name", None)
        return name if isinstance(name, str) else None


@dataclass
class Walk:
    """saveables: in Keras's order, each object once. seeds: states of seed generators, which Keras passes over, by path. elsewhere:
    path of an object -> further paths on which it can be reached."""

    saveables: list[Saveable] = field(default_factory=list)
    seeds: dict[str, Any] = field(default_factory=dict)
    elsewhere: dict[str, list[str]] = field(default_factory=dict)

    def other_paths(self, path: str) -> Iterator[str]:
        """Where an older version of the model may have had the object at `path`: one of the objects it lies in has several paths."""
        for first, others in self.elsewhere.items():
            if path == first or (first and path.startswith(first + "/")):
                yield from (other + path[len(first):] for other in others)


def walk(model: Any) -> Walk:
    """Everything within a model that saves itself. InvalidArgumentError for what is no object of Keras."""
    if not isinstance(model, KerasSaveable):
        raise InvalidArgumentError(f"{type(model).__name__} is no Keras model", expected="a keras.Model or keras.Layer")
    return _Walker().run(model)


class _Walker:
    def __init__(self) -> None:
        self.walk = Walk()
        self.first_path: dict[int, str] = {}

    def run(self, model: Any) -> Walk:
        self.visit(model, "")
        return self.walk

    def visit(self, saveable: Any, path: str) -> None:
        if id(saveable) in self.first_path:
            first = self.first_path[id(saveable)]
            if first != path:
                self.walk.elsewhere.setdefault(first, []).append(path)
            return
        self.first_path[id(saveable)] = path
        self.walk.saveables.append(Saveable(saveable, path))
        for attribute, child in _walk_saveable(saveable):
            inner = f"{path}/{attribute}" if path else attribute
            if isinstance(child, KerasSaveable):
                self.visit(child, inner)
            elif isinstance(child, (list, dict, tuple)):
                self.visit_container(child, inner, set())
            elif isinstance(child, keras.random.SeedGenerator) and not any(v is child.state for v in self.walk.seeds.values()):
                self.walk.seeds[inner] = child.state

    def visit_container(self, container: Any, path: str, visited: set[int]) -> None:
        if id(container) in visited:
            return
        visited.add(id(container))
        used: dict[str, int] = {}
        for item in list(container.values()) if isinstance(container, dict) else container:
            if isinstance(item, KerasSaveable):
                self.visit(item, f"{path}/{_unique(to_snake_case(type(item).__name__), used)}")
            elif isinstance(item, (list, dict, tuple)):
                self.visit_container(item, f"{path}/{_unique('container', used)}", visited)


def _unique(name: str, used: dict[str, int]) -> str:
    used[name] = used.get(name, -1) + 1
    return f"{name}_{used[name]}" if used[name] else name


# ---- what an object saves

def is_variable(value: Any) -> bool:
    return isinstance(value, keras.Variable)


def trusted(method: str, saveable: Any) -> bool:
    """Whether this method is Keras's own: what it does is known."""
    return str(getattr(getattr(type(saveable), method, None), "__module__", "")).startswith("keras.")


def is_plain_optimizer(saveable: Any) -> bool:
    """An optimizer that saves and loads its variables by their number."""
    return isinstance(saveable, keras.optimizers.Optimizer) and trusted("save_own_variables", saveable) and trusted("load_own_variables", saveable)


def own_variables(layer: Any) -> list[Any]:
    """Of the object itself, without those of what lies in it."""
    found = [*getattr(layer, "_trainable_variables", []), *getattr(layer, "_non_trainable_variables", [])]
    return list(filter(is_variable, found))


def numbered(optimizer: Any) -> dict[str, Any]:
    return {str(i): variable for i, variable in enumerate(optimizer.variables)}


def record(saveable: Any) -> dict[str, Any]:
    """What the object puts into a store when it is saved: keys to variables, arrays, or whatever else it chooses.

    Optimizers are not asked: theirs copies every slot to the host first.
    """
    if not hasattr(saveable, "save_own_variables"):
        return {}
    if is_plain_optimizer(saveable):
        return numbered(saveable)
    store: dict[str, Any] = {}
    saveable.save_own_variables(store)
    return store


def lora_variables(layer: Any) -> dict[str, Any] | None:
    """Variables that Keras's own layer with LoRA loads its keys into; asking it to save would multiply the matrices out. None when
    the layer has another way."""
    kernel = getattr(layer, "_kernel", None) if hasattr(layer, "_kernel") else getattr(layer, "_embeddings", None)
    if kernel is None:
        return None
    specification = getattr(layer, "variable_serialization_spec", None)
    if specification is None:
        found = [kernel, *([layer.bias] if getattr(layer, "use_bias", False) else [])]
    else:
        mode = layer.quantization_mode
        if mode not in specification:
            return None
        found = [kernel if name in ("kernel", "embeddings") else getattr(layer, name, None) for name in specification[mode]]
        found = [variable for variable in found if variable is not None]
    return {str(i): variable for i, variable in enumerate(found)} if all(map(is_variable, found)) else None


def expected(saveable: Any) -> dict[str, Any] | None:
    """Keys to the variables that they are loaded into, where that is certain: Keras's own methods, and nothing computed. None where
    only the object knows."""
    if not trusted("save_own_variables", saveable) or not trusted("load_own_variables", saveable):
        return None
    if getattr(saveable, "lora_enabled", False):
        return lora_variables(saveable)
    try:
        recorded = record(saveable)
    except Exception:  # what cannot be saved in its present state may still be loaded: the object itself will tell
        return None
    return recorded if all(map(is_variable, recorded.values())) else None


# ---- for people

class Weight(NamedTuple):
    """name: in files, "layers/dense/vars/0". path: Keras's own, "sequential/dense/kernel"; None for a value that a layer computes
    when it is saved. variable: the keras.Variable; None likewise."""

    name: str
    path: str | None
    shape: tuple[int, ...]
    dtype: str
    variable: Any

    def __repr__(self) -> str:
        return f"<Weight '{self.name}' ({self.path or 'computed'}): {self.dtype} {list(self.shape)}>"


def weights_of(model: Any) -> list[Weight]:
    """Every weight of a model that is saved, in the order in which it is, slots of the optimizer included. A variable that two layers
    share has a row for each of its names. No value is read, but layers that compute what they save do so (LoRA)."""
    rows: list[Weight] = []
    for saveable in walk(model).saveables:
        known = expected(saveable.object) if hasattr(saveable.object, "load_own_variables") else {}
        for key, value in (record(saveable.object) if known is None else known).items():
            if is_variable(value):
                rows.append(Weight(saveable.file_name(key), value.path, shape_of(value), keras.backend.standardize_dtype(value.dtype), value))
            else:
                array = value if hasattr(value, "shape") and hasattr(value, "dtype") else keras.ops.convert_to_numpy(value)
                rows.append(Weight(saveable.file_name(key), None, tuple(array.shape), keras.backend.standardize_dtype(array.dtype), None))
    return rows


def shape_of(variable: Any) -> tuple[int, ...]:
    """Of its value where the variable's own shape is partly unknown."""
    shape = tuple(variable.shape)
    return tuple(variable.value.shape) if any(extent is None for extent in shape) else shape


def require_built(model: Any, doing: str) -> None:
    if not isinstance(model, KerasSaveable):
        raise InvalidArgumentError("this is no model of Keras", found=repr(model)[:200])
    if not getattr(model, "built", True):
        raise InvalidArgumentError(f"the model has no weights yet: it must be built before {doing}", hint="call it on data, or model.build(input_shape)")
