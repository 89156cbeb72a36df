"""Weights from files into a live model: everything is checked first, then values come one variable at a time."""
from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from ..dtypes import Array, is_float
from ..errors import Error, NotFoundError, ResourceExhaustedError
from ..jobs import verify as verify_checkpoint
from ..memory import DEFAULT_MEMORY, size
from ..checkpoint import Tensor
from ..progress import Progress, reporting
from . import backends
from .legacy import legacy_names
from .matching import Item, Match, MismatchError, match
from .reading import Reading, Want
from .report import Report, shown
from .stored import Located, Path, Stored, open_stored
from .walk import Saveable, expected, is_plain_optimizer, own_variables, require_built, walk


@dataclass
class Loaded:
    """weights: how many tensors of the file were loaded. skipped: what was left out and why, one line each. whole: paths of layers over several
    devices whose own load_own_variables() needs whole arrays, and got them. bytes_read: of the files."""

    weights: int = 0
    skipped: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    bytes_read: int = 0
    seconds: float = 0.0


def load_weights(model: Any, path: Path | Sequence[Path], skip_mismatch: bool = False, *, optimizer: bool | None = None,
                 verify: bool = False, free_first: bool = False, isolate: bool = False, memory: int | str = DEFAULT_MEMORY,
                 threads: int = 0, progress: Progress | str = "auto") -> Loaded:
    """Loads the weights of a Keras model, all or nothing, each value read once and straight to where it belongs.

    path: what Keras's save_weights() and save() and what save_weights() here write: x.weights.h5, x.weights.json with its shards, x.keras,
        x.h5 as of Keras 2, .safetensors, a directory with safetensors; or a list of shard files. Tensors may be named as Keras's files name them or by
        the paths of the model's variables (see weights_of).
    skip_mismatch: load what fits, and warn of the rest; a layer is loaded whole or not at all.
    optimizer: True: its weights must be in the file. False: leave it as it is. None: load them if the file has any, and warn if the
        model has an optimizer and the file has not.
    verify: check content hashes against the manifest first, which reads the files twice; CorruptError, or NotFoundError when there is no
        manifest, before anything is changed.
    free_first: give up a variable's old value before its new one is read, for models that barely fit; whoever else holds the old
        value loses it.
    isolate: read HDF5 metadata in a child process, for files that are not trusted.
    memory: bytes that may be used beside the model and the variable that is being replaced. threads: workers; 0: as many as pay.
    progress: "auto": a bar when there is much to read and someone to see it; else see shardwright.Progress.

    Floating types are converted, with a warning where that loses precision. Layers with a load_own_variables() of their own are
    tried out first, in a scope that keeps their variables as they are.
    Raises MismatchError, which names all that does not fit, and what shardwright.open() raises; then nothing was changed. When the
    disk fails, the file changes, or the work is stopped while values are read, the model holds some of the new ones, and the error says so;
    with free_first the variables of the rest hold nothing until they are loaded again.
    """
    require_built(model, "its weights are loaded")
    path = path if isinstance(path, (str, os.PathLike)) else list(path)
    begun = time.perf_counter()
    if verify:
        _verify(path, isolate, memory, threads)
    budget = size(memory, "memory")
    if budget < 1 << 20:
        raise ResourceExhaustedError("the memory budget is too small", found=f"{budget} bytes", expected="at least 1 MiB")
    with open_stored(path, isolate) as stored:
        walked = walk(model)
        if stored.plain:
            _name_plain(stored, model, walked.saveables)
        found = match(walked, stored, optimizer)
        result = Loaded()
        result.whole = _rehearse(found)
        _settle(found, model, stored, skip_mismatch, result)
        total = sum(entry.tensor.nbytes for item in found.items for entry in item.entries.values())
        with reporting(shown(progress, total)) as callback:
            _Load(found, free_first, budget, threads, Report(callback, "read", total)).run()
        result.weights = sum(len(item.entries) for item in found.items) + len(found.seeds)
        result.bytes_read = stored.bytes_read
    result.seconds = time.perf_counter() - begun
    return result


def _verify(path: Path | Sequence[Path], isolate: bool, memory: int | str, threads: int) -> None:
    for one in [path] if isinstance(path, (str, os.PathLike)) else path:
        outcome = verify_checkpoint(one, full=True, isolate=isolate, memory=memory, threads=threads)
        if outcome.findings:
            raise outcome.findings[0]
        if not outcome.manifest:
            raise NotFoundError("there are no content hashes to verify it by", path=os.fspath(one), expected="an entry in shardwright.manifest.json beside it",
                                hint="manifest=True makes it when saving, shardwright.hash(path, write=True) later; of a set it belongs to the index")


def _name_plain(stored: Stored, model: Any, saveables: Iterable[Saveable]) -> None:
    """Gives tensors whose names are not Keras's the names that are meant: by paths of variables, or as Keras 2 had them."""
    names: dict[int, str] = {}
    paths: dict[str, set[int]] = {}
    for saveable in saveables:
        for key, variable in (expected(saveable.object) or {}).items() if hasattr(saveable.object, "load_own_variables") else ():
            names.setdefault(id(variable), saveable.file_name(key))
            paths.setdefault(variable.path, set()).add(id(variable))
    if all(checkpoint.format == "hdf5" for checkpoint in stored.checkpoints):
        mapped, others = legacy_names(model, stored.plain, names)
        for name in others:
            del stored.plain[name]
        stored.rename(mapped)
    stored.rename({path: names[next(iter(ids))] for path, ids in paths.items() if len(ids) == 1})


# ---- before anything changes

def _rehearse(found: Match) -> list[str]:
    """Lets objects with methods of their own load inside a scope in which variables keep their values. Returns paths of those that lie over
    several devices and need whole arrays; others get theirs sharded (Item.guesses)."""
    whole: list[str] = []
    for item in found.items:
        if item.exact:
            continue
        spread = backends.are_spread(own_variables(item.saveable.object))
        if spread:
            item.guesses = _guesses(item)
            works = bool(item.guesses) and backends.loads_in_trace(item.saveable.object, _traced(item), item.guesses)
            if not works:
                item.guesses = {}
            if len(item.guesses) < len(item.entries):
                whole.append(item.saveable.path)
            if works:
                continue
        try:
            with keras.StatelessScope():
                item.saveable.object.load_own_variables(_Whole(item.entries))
        except Error:
            raise
        except Exception as error:  # whatever the object's own method raises is what does not fit
            name = item.saveable.file_name("")
            found.problems.append((item.saveable.path, f"'{name}' ({type(item.saveable.object).__name__}.load_own_variables): "
                                                       f"{type(error).__name__}: {error}"))
    return whole


def _guesses(item: Item) -> dict[str, Any]:
    """For each key the variable that its value is likely to go to: the one of that number, or the first of that shape. Only where the value lies until
    Keras assigns it depends on this."""
    own = own_variables(item.saveable.object)
    found: dict[str, Any] = {}
    for key, (_, tensor) in item.entries.items():
        def fits(variable: Any, tensor: Tensor = tensor) -> bool:
            have, want = tensor.dtype, backends.dtype_of(variable)
            return tuple(variable.shape) == tensor.shape and (have == want or (is_float(have) and is_float(want)))
        free = [variable for variable in own if not any(variable is other for other in found.values())]
        numbered = [own[int(key)]] if key.isdecimal() and int(key) < len(own) else []
        variable = next((variable for variable in [*numbered, *free] if fits(variable)), None)
        if variable is not None:
            found[key] = variable
    return found


def _traced(item: Item) -> Callable[[dict[str, Any]], Any]:
    """The store of an object, of what stands for the values of its guesses."""
    whole = _Whole(item.entries)

    def store(values: dict[str, Any]) -> _Store:
        return _Store({key: (lambda key=key: values[key] if key in values else whole[key]) for key in item.entries})  # type: ignore[misc]
    return store


def _settle(found: Match, model: Any, stored: Stored, skip_mismatch: bool, result: Loaded) -> None:
    """Raises what does not fit, or leaves it out. Says what is lost."""
    bad = {path for path, _ in found.problems}
    lines = [line for _, line in found.problems]
    count = sum(len(keys) for keys in stored.groups.values()) + len(stored.plain)
    if lines and not skip_mismatch:
        raise MismatchError(f"{len(lines)} of the file's {count} weights and the model's do not fit each other; nothing was changed",
                            problems=lines, path=stored.path, hint="skip_mismatch=True loads the others")
    found.items = [item for item in found.items if item.saveable.path not in bad]
    result.skipped = lines
    if lines:
        _warn(f"{stored.path}: left out, as they do not fit the model '{getattr(model, 'name', type(model).__name__)}':", lines)
    if found.absent:
        _warn(f"{stored.path}: saved by a version of Keras that left out layers in nested containers; these keep their values:", found.absent)
        result.skipped = result.skipped + [f"'{path}': not in the file" for path in found.absent]
    if found.without_optimizer and not lines:
        _warn(f"{stored.path}: has no weights of an optimizer; the model's optimizer keeps its own", [])
    if found.narrowed:
        _warn(f"{stored.path}: {len(found.narrowed)} weights lose precision in the model's dtypes:", found.narrowed)


def _warn(text: str, lines: Sequence[str]) -> None:
    more = [f"and {len(lines) - 20} more"] if len(lines) > 20 else []
    warnings.warn("\n  ".join([text, *lines[:20], *more]), stacklevel=4)


# ---- values

class _Load(Reading):
    """Reads what layers ask for."""

    def __init__(self, found: Match, free_first: bool, memory: int, threads: int, report: Report):
        super().__init__(free_first, memory, threads, report)
        self.found = found

    def run(self) -> None:
        wants = {id(item): {key: Want(located, into[key], item.exact) for key, located in item.entries.items() if key in into}
                 for item in self.found.items if (into := item.guesses if item.targets is None else item.targets)}
        self.plan([want for item in self.found.items for want in wants.get(id(item), {}).values()])
        try:
            for item in self.found.items:
                self.load(item, wants.get(id(item)))
            for state, located in self.found.seeds:
                state.assign(np.asarray(located.tensor))
        except Error as error:
            error.context = (*error.context, "while values were read: the model holds some of the new ones")
            raise

    def load(self, item: Item, wants: dict[str, Want] | None) -> None:
        wants = wants or {}
        if item.targets is None:
            whole = _Whole(item.entries, self.report)
            made = {key: (lambda key=key: self.take(wants[key]) if key in wants else whole[key]) for key in item.entries}
            item.saveable.object.load_own_variables(_Store(made) if wants else whole)
        elif is_plain_optimizer(item.saveable.object):  # its own method would take nothing of a file that has fewer
            for want in wants.values():
                want.variable.assign(self.take(want))
        else:
            item.saveable.object.load_own_variables(_Store({key: (lambda want=want: self.take(want)) for key, want in wants.items()}))
        for want in wants.values():
            self.ready.pop(want, None)


class _Store:
    """What load_own_variables() is given: keys of the file; a value is made when it is asked for."""

    def __init__(self, make: dict[str, Callable[[], Any]]):
        self._make = make

    def keys(self) -> Any:
        return self._make.keys()

    def __len__(self) -> int:
        return len(self._make)

    def __iter__(self) -> Iterator[str]:
        return iter(self._make)

    def __contains__(self, key: object) -> bool:
        return key in self._make

    def __getitem__(self, key: str) -> Any:
        if key not in self._make:
            raise KeyError(key)
        return self._make[key]()

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((key, self[key]) for key in self)

    def values(self) -> Iterator[Any]:
        return (self[key] for key in self)


class _Whole(_Store):
    """For objects with a method of their own: new NumPy arrays in the file's dtypes, as from Keras, which they may change."""

    def __init__(self, entries: dict[str, Located], report: Report | None = None):
        self._entries, self._report = entries, report
        super().__init__({key: (lambda key=key: self._read(key)) for key in entries})  # type: ignore[misc]

    def _read(self, key: str) -> Array:
        array = np.asarray(self._entries[key].tensor)
        if self._report is not None:
            self._report.add(array.nbytes)
        return array

