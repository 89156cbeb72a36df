"""What of a file goes into what of a model: decided, and checked, from names, shapes and dtypes alone."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import keras
import ml_dtypes
import numpy as np

from .. import _core
from ..dtypes import is_float
from ..errors import InvalidArgumentError
from .backends import dtype_of
from .stored import Located, Stored, join_name
from .walk import Saveable, Walk, expected, is_plain_optimizer, numbered, shape_of

# Integers that may not fit are looked at beforehand, up to this size.
_PEEK_BYTES = 1 << 20
_MOST_LINES = 20


class MismatchError(InvalidArgumentError):
    """What the file holds is not what the model needs. Nothing was changed.

    problems: all that does not fit, one line each; str() shows the first 20.
    """

    def __init__(self, message: str, *, problems: Iterable[str] = (), **place: Any):
        self.problems = list(problems)
        shown = ["  " + problem for problem in self.problems[:_MOST_LINES]]
        if len(self.problems) > _MOST_LINES:
            shown.append(f"  and {len(self.problems) - _MOST_LINES} more")
        super().__init__(message, context=shown, **place)


MismatchError.code, MismatchError.retryable = InvalidArgumentError.code, InvalidArgumentError.retryable


@dataclass
class Item:
    """An object of the model and what the file has for it. targets: the variable of each key, where Keras's own method puts the value
    there unchanged; None where only the object knows what it does with it. guesses: then, variables whose layout the values of keys are read in."""

    saveable: Saveable
    entries: dict[str, Located]
    targets: dict[str, Any] | None
    guesses: dict[str, Any] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return self.targets is not None


@dataclass
class Match:
    """items: to be loaded, in order. seeds: (state of a seed generator, what the file has for it). problems: lines by the path of the
    object they concern. narrowed: names of weights that lose precision. absent: objects of containers that older versions of Keras did
    not save. without_optimizer: the model has an optimizer, the file has none of its weights."""

    items: list[Item] = field(default_factory=list)
    seeds: list[tuple[Any, Located]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    without_optimizer: bool = False


def match(walk: Walk, stored: Stored, optimizer: bool | None) -> Match:
    """optimizer: True when its weights must be there, False when they are left alone, None when they are loaded if the file has any."""
    return _Matcher(walk, stored, optimizer).run()


class _Matcher:
    def __init__(self, walk: Walk, stored: Stored, optimizer: bool | None):
        self.walk, self.stored, self.optimizer = walk, stored, optimizer
        self.result = Match()
        self.used: set[str] = set()
        self.missing: list[tuple[str, str, str]] = []  # path of the object, name, what the model has
        self.surplus: list[tuple[str, str]] = []  # path of the object, or of the group in the file; name
        self.file_has_optimizer = any(map(_is_of_optimizer, stored.groups))

    def run(self) -> Match:
        for path, state in self.walk.seeds.items():
            self.match_seed(path, state)
        for saveable in self.walk.saveables:
            if hasattr(saveable.object, "load_own_variables"):
                self.match_saveable(saveable)
        self.report_names()
        return self.result

    def match_seed(self, path: str, state: Any) -> None:
        """Versions of Keras before 3.6 or so saved them."""
        self.used.add(path)
        entries = self.stored.groups.get(path, {})
        if list(entries) == ["0"] and tuple(entries["0"].tensor.shape) == shape_of(state) and entries["0"].tensor.dtype == dtype_of(state):
            self.result.seeds.append((state, entries["0"]))

    def match_saveable(self, saveable: Saveable) -> None:
        path = self.find(saveable.path)
        self.used.add(path)
        entries = dict(sorted(self.stored.groups.get(path, {}).items(), key=lambda item: _key_order(item[0])))
        if _is_of_optimizer(saveable.path):
            if self.optimizer is False:
                return
            if not self.file_has_optimizer:
                self.result.without_optimizer = True
                if self.optimizer is None:
                    return
            _build_optimizer(saveable.object, len(entries), self.walk.saveables[0].object)
        targets = expected(saveable.object)
        if _is_fresh(saveable.object, targets) and 0 < len(entries) < 3:
            assert targets is not None
            targets = {key: targets[key] for key in ("0", "1")[:len(entries)]}  # saved before its first step, when there are no slots
        if targets and not entries and self.is_of_older_keras(saveable.path):
            self.result.absent.append(saveable.path)
            return
        self.result.items.append(Item(saveable, entries, targets))
        if targets is not None:
            self.check(saveable, path, entries, targets)

    def find(self, path: str) -> str:
        """Where the file has it: on the path on which it is reached first, or another."""
        if path in self.stored.groups:
            return path
        return next((other for other in self.walk.other_paths(path) if other in self.stored.groups), path)

    def is_of_older_keras(self, path: str) -> bool:
        """Whether it lies in a container within a container, and the file has nothing of that."""
        parts = path.split("/")
        containers = ["/".join(parts[:i + 1]) for i, part in enumerate(parts) if part.rstrip("0123456789_") == "container"]
        return any(not any(group.startswith(container + "/") for group in self.stored.groups) for container in containers)

    def check(self, saveable: Saveable, path: str, entries: dict[str, Located], targets: dict[str, Any]) -> None:
        if entries and not targets and not getattr(saveable.object, "built", True):
            count = "1 weight" if len(entries) == 1 else f"{len(entries)} weights"
            self.problem(saveable.path, f"{_quoted(saveable)} was never built; the file has {count} for it: call the model on data first, or "
                         "build this layer in the build() of the one that owns it")
            return
        for key, variable in targets.items():
            if key not in entries:
                self.missing.append((saveable.path, saveable.file_name(key), described(variable)))
                continue
            found = unfit(entries[key], variable)
            if found:
                self.problem(saveable.path, f"'{saveable.file_name(key)}' ({variable.path}): {found}")
            elif narrows(entries[key].tensor.dtype, dtype_of(variable)):
                self.result.narrowed.append(saveable.file_name(key))
        self.surplus += [(saveable.path, join_name(path, key)) for key in entries if key not in targets]

    def problem(self, path: str, line: str) -> None:
        self.result.problems.append((path, line))

    def report_names(self) -> None:
        """Names that only one side has, each with what is near to it on the other."""
        self.surplus += [(path, join_name(path, key)) for path, entries in self.stored.groups.items()
                         if path not in self.used and not self.ignored(path) for key in entries]
        self.surplus += [(name, name) for name in self.stored.plain]
        missing = [name for _, name, _ in self.missing]
        surplus = [name for _, name in self.surplus]
        for path, name, described in self.missing:
            self.problem(path, f"'{name}' ({described}): not in the file" + near_text(name, surplus or self.stored.names()))
        for path, name in self.surplus:
            self.problem(path, f"'{name}': in the file, not in the model" + near_text(name, missing))

    def ignored(self, path: str) -> bool:
        """Groups that a model may do without: of an optimizer that it has not, and states of seed generators, which Keras leaves out today."""
        if _is_of_optimizer(path):
            return self.optimizer is not True
        return path.rsplit("/", 1)[-1].startswith("seed_generator")


def _is_of_optimizer(path: str) -> bool:
    return path == "optimizer" or path.startswith("optimizer/")


def _key_order(key: str) -> tuple[bool, int, str]:
    return (False, int(key), "") if key.isdecimal() else (True, 0, key)


def _quoted(saveable: Saveable) -> str:
    kind = type(saveable.object).__name__
    return f"{kind} '{saveable.label}' at '{saveable.path}'" if saveable.label else f"{kind} at '{saveable.path}'"


def described(variable: Any) -> str:
    return f"{variable.path}, {dtype_of(variable).name} {list(shape_of(variable))}"


def near_text(name: str, names: list[str]) -> str:
    near = _core.nearest_names(name, names, 2)
    return "; near: " + ", ".join(map(repr, near)) if near else ""


def _build_optimizer(optimizer: Any, stored_count: int, model: Any) -> None:
    """Before the first step an optimizer has no slots to load into: makes them. Keras warns and leaves them out."""
    if is_plain_optimizer(optimizer) and not optimizer.built and stored_count > len(numbered(optimizer)):
        optimizer.build(model.trainable_variables)


def _is_fresh(saveable: Any, targets: dict[str, Any] | None) -> bool:
    """Whether it is an optimizer of Keras that has not made a step: its slots hold nothing."""
    return is_plain_optimizer(saveable) and targets is not None and len(targets) > 2 and int(keras.ops.convert_to_numpy(saveable.iterations)) == 0


# ---- values

def unfit(located: Located, variable: Any) -> str | None:
    """Why the tensor cannot be loaded into the variable; None when it can."""
    tensor = located.tensor
    if not shapes_fit(tensor.shape, tuple(variable.shape)):
        return f"{list(tensor.shape)} in the file, {list(variable.shape)} in the model"
    have, want = tensor.dtype, dtype_of(variable)
    if have == want or (is_float(have) and is_float(want)) or is_bytes_of_float8(have, want):
        return None
    if have.kind in "iu" and want.kind in "iu":
        if np.can_cast(have, want, "safe"):
            return None
        if tensor.nbytes <= _PEEK_BYTES:
            values, limits = np.asarray(tensor), np.iinfo(want)
            if values.size == 0 or (int(values.min()) >= limits.min and int(values.max()) <= limits.max):
                return None
            return f"{have.name} in the file, with values that {want.name} of the model cannot hold"
    return f"{have.name} in the file, {want.name} in the model"


def shapes_fit(have: tuple[int, ...], want: tuple[int | None, ...]) -> bool:
    """Extents that the model does not know (None) fit any."""
    return len(have) == len(want) and all(b is None or a == b for a, b in zip(have, want))


def is_bytes_of_float8(have: np.dtype[Any], want: np.dtype[Any]) -> bool:
    """Keras writes float8 without saying which: the model knows."""
    return have == np.uint8 and want.name.startswith("float8")


def narrows(have: np.dtype[Any], want: np.dtype[Any]) -> bool:
    """Whether values change when they are converted."""
    if have == want or not (is_float(have) and is_float(want)):
        return False
    a, b = ml_dtypes.finfo(have), ml_dtypes.finfo(want)
    return bool(a.nmant > b.nmant or a.maxexp > b.maxexp or a.minexp < b.minexp)

