"""The checkpoints of a training run: saved in the background, kept by rules, found again, restored anywhere.

    with shardwright.CheckpointManager("run/", keep_last=3, best_metric="loss", keep_best=2) as manager:
        start = manager.latest()
        if start is not None:
            state = manager.restore(target=state)
        for step in range(0 if start is None else start + 1, steps):
            state, loss = train(state)
            manager.save(step, state, metrics={"loss": float(loss)}, iterator_state=batches.get_state())
"""
from __future__ import annotations

import atexit
import json
import math
import operator
import os
import re
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Literal

from . import _core
from .arrays import Filler, Source
from .checkpoint import Checkpoint, open as open_checkpoint
from .dtypes import block_of
from .errors import CorruptError, Error, InvalidArgumentError, NotFoundError, UnavailableError, UnsupportedError
from .facts import METRICS, files_of_iterator, json_text, metadata_text, metrics_of, read_state, states_of_iterators
from .items import TREE, check_name, files_of_item
from .jobs import verify as verify_checkpoint
from .memory import DEFAULT_MEMORY, size
from .progress import Progress, reporting
from .ranks import Ranks, current_ranks, get_process_count, get_process_index
from .targets import Report, fill_target
from .tree import Note, Noted, Stored, flatten, is_unicode, noted_of, stored_of

FORMATS = ("orbax", "safetensors", "keras-h5", "keras-sharded")


@dataclass(frozen=True)
class StepInfo:
    """A step on disk. complete: proved whole, by what `proof` says; else what it lacks. nbytes: of its files; shared_nbytes: of those, what other
    steps have too; new_nbytes: what none has."""

    step: int
    name: str
    complete: bool
    proof: str
    pinned: bool
    time: datetime
    nbytes: int
    shared_nbytes: int
    metrics: dict[str, float]
    metadata: dict[str, Any]

    @property
    def new_nbytes(self) -> int:
        """Of its files those that no other step has, in bytes."""
        return self.nbytes - self.shared_nbytes


class CheckpointManager:
    """Steps of a run, in one directory that this job writes alone: <directory>/<step>/ in Orbax's layout. Not thread-safe.

    By several processes: the constructor, save(), restore() and agreed() without a number, and reached_preemption() are collective: all make the same
    calls in the same order. Each saves what it holds of the tree, whose names are the same on all; what is not spread (NumPy, PyTorch, scalars) all have
    alike. Every box is written once, by one of them; one commits when all have written. Nothing else is collective, and pin(), delete() and prune() are
    for one.
    """

    def __init__(self, directory: str | os.PathLike[str], *, format: str = "orbax", item: str = "state", background: bool = True,
                 hold: Literal["auto", "copy", "reference"] = "auto", second: Literal["wait", "refuse"] = "wait",
                 lower: Literal["refuse", "branch"] = "refuse", max_to_keep: int | None = None, keep_last: int | None = None,
                 keep_every: int | None = None, keep_interval: float | None = None, best_metric: str | None = None,
                 best_mode: Literal["min", "max"] = "min", keep_best: int | None = None, keep_without_metric: bool = True,
                 keep_if: Callable[[StepInfo], bool] | None = None, prefix: str = "", digits: int = 0, staging: int | str = "64GiB",
                 max_shard_size: int | str | None = None, options: Mapping[str, str] | None = None, incremental: bool = False,
                 preemption: int | None = None, ranks: Ranks | Literal["job"] | None = "job", memory: int | str = DEFAULT_MEMORY,
                 threads: int = 0):
        """directory: a path, where '~' is not expanded; addresses ("gs://...") are refused. Made by the first save. What a dead process left of a save
            there is removed.

        format: how tensors are written: "orbax", "safetensors", "keras-h5", "keras-sharded". item: the directory within a step that holds them.
        background: save() returns when the values are held still; else when the step is there.
        hold: how they are: "copy", into memory that is kept from save to save, at most `staging` bytes of it; "reference", as they lie, for
            arrays that nothing changes (JAX: a step that donates them is slower once); "auto": a copy, and where that does not fit, by
            reference if all arrays are JAX's, else the save is not in the background.
        second: a save while another one runs waits for it, or is refused (UnavailableError).
        lower: a step lower than one that is there is refused (AlreadyExistsError), or begins a branch: later steps move to .branches/<n>/.
        Rules by which steps are kept; a step stays when any of them says so, and without any rule all do:
        keep_last: the newest n. keep_every: multiples of n. keep_interval: seconds between two that are kept. keep_best: the best n by
            best_metric, best_mode. keep_without_metric: those without that metric stay too. keep_if: asked at each save for every step.
            max_to_keep: keep_best with a best_metric, else keep_last. The newest, the best and pinned steps are never removed.
        prefix, digits: step 5 is "<prefix>_000005" with digits=6.
        incremental: files of which no tensor has changed since the last step are hard links to that step's; files are of about 1 MiB then, or one
            larger tensor, unless max_shard_size says otherwise. Each step is whole by itself.
        preemption: a signal, as signal.SIGTERM, that is to be noted instead of ending the process, until close(); see reached_preemption().
        ranks: the processes that save together; "job": those of join_ranks(), jax.distributed or torch.distributed, where there are any; None: this
            process alone. Their timeout is how long one waits for the others in the background: then all fail, naming those that are missing.
        max_shard_size, options, memory, threads: as in shardwright.save().
        """
        count = max_to_keep if keep_best is None and best_metric is not None else keep_best
        if keep_last is None and best_metric is None:
            keep_last = max_to_keep
        for name, given, known in (("hold", hold, ("auto", "copy", "reference")), ("second", second, ("wait", "refuse")),
                                   ("lower", lower, ("refuse", "branch")), ("best_mode", best_mode, ("min", "max")), ("format", format, FORMATS)):
            if given not in known:
                raise InvalidArgumentError(f"no such {name}", found=repr(given), expected=" or ".join(map(repr, known)))
        for name, number in (("max_to_keep", max_to_keep), ("keep_last", keep_last), ("keep_every", keep_every), ("keep_best", keep_best)):
            _check_rule(name, number, int, "a whole number from 1 on")
        _check_rule("keep_interval", keep_interval, (int, float), "seconds, from 1 on")
        if keep_if is not None and not callable(keep_if):
            raise InvalidArgumentError("keep_if cannot be called", found=repr(keep_if), expected="a function of a StepInfo, that says whether it stays")
        check_name(item)
        if keep_best is not None and best_metric is None:
            raise InvalidArgumentError("keep_best needs a best_metric")
        if best_metric is not None and count is None and any(rule is not None for rule in (keep_last, keep_every, keep_interval, keep_if)):
            count, keep_without_metric = 1, False  # whatever the rules: the best stays
        self._root = root_of(directory)
        self._format, self._item, self._background, self._hold, self._second = format, item, background, hold, second
        self._best = best_metric, best_mode == "max"
        self._keep_if = keep_if
        self._staging = size(staging, "staging")
        self._shard = None if max_shard_size is None else size(max_shard_size, "max_shard_size")
        self._options, self._memory, self._threads = list((options or {}).items()), size(memory, "memory"), threads
        # A predicate alone is a rule too: then nothing stays by itself.
        rules = {"last": keep_last if keep_last is not None or keep_if is None or count is not None else 1, "every_steps": keep_every,
                 "every_seconds": None if keep_interval is None else max(1, round(keep_interval)), "metric": best_metric, "best": count,
                 "max": best_mode == "max", "keep_missing": keep_without_metric}
        self._held: list[Source] = []
        self._warned_of: tuple[int, float] | None = None
        self._preemption: Preemption | None = None
        self._incremental = bool(incremental)
        self._ranks = current_ranks() if ranks == "job" else ranks
        self._opened: _core.Manager | None = _core.open_manager(
            self._root, {**rules, "prefix": prefix, "digits": digits, "staging_bytes": self._staging, "refuse_second": second == "refuse",
                         "branch": lower == "branch"}, self._memory, threads, None if self._ranks is None else self._ranks._core)
        _managers.add(self)
        self._preemption = None if preemption is None else Preemption(preemption)

    @property
    def directory(self) -> str:
        """Of the run, as an absolute path."""
        return self._root

    @property
    def ranks(self) -> Ranks | None:
        """The processes that save together; None: this one alone."""
        return self._ranks

    def position(self) -> tuple[int, int]:
        """Which of them this process is, and of how many."""
        return (get_process_index(), get_process_count()) if self._ranks is None else (self._ranks.index, self._ranks.count)

    @property
    def _core(self) -> _core.Manager:
        if self._opened is None:
            raise InvalidArgumentError("the manager was closed")
        return self._opened

    # ---- saving

    def save(self, step: int, tree: Any, *, metrics: Mapping[str, float] | None = None, metadata: Mapping[str, Any] | None = None,
             iterator_state: Any = None, items: Mapping[str, Any] | None = None, force: bool = False, background: bool | None = None,
             within: float | None = None, progress: Progress = None) -> None:
        """Saves a step. When it returns, the values are held still: later changes, donation and freeing do not reach the file.

        tree: nested dicts, lists, tuples and what JAX knows as nodes, of arrays (NumPy's, PyTorch's, JAX's), numbers, text, None, random keys.
        metrics: numbers by name. metadata: anything that is JSON. iterator_state: JSON, or text or bytes that a data iterator gave.
        items: further small dicts, lists or tuples by name (of text, numbers and NumPy arrays), each in a directory of its own beside the tree; restore(item=name) gives it.
        force: replaces a step that is there, at once; else AlreadyExistsError.
        background: other than the manager's. within: seconds after which a save that is not done ends with AbortedError, leaving nothing (on
            SIGTERM: save(..., within=20), then wait()).
        progress: of what is done before this returns.

        A failure in the background is raised here by the next call, before anything is saved, by wait(), and by close(): a failed step is none.
        """
        before = self._failed_before()
        try:
            step = _step_number(step)
            stored = stored_of(tree)
            metrics = None if metrics is None else metrics_of(metrics)
            fields: dict[str, Any] = {
                "item": self._item, "format": self._format, "max_shard_bytes": self._shard, "settings": self._options, "replace": force,
                "metadata": metadata_text({} if metadata is None else metadata), "files": self._files(stored, metrics, iterator_state, items or {}),
                "hold": self._hold_for(stored, background), "seconds": within, "incremental": self._incremental,
                "keep": self._kept_by_predicate(step, metrics, metadata)}
            values = [("orbax", json.dumps({"items": {"": stored.document}}))] if self._format == "orbax" else []
            given: list[Any] = [(s.name, s.dtype, s.shape, s.where) for s in stored.sources]
            fill = Filler(stored.sources) if any(s.producer is not None for s in stored.sources) else None
        except Exception as error:
            self._core.refuse(f"{type(error).__name__}: {error}")  # the others wait for this process
            raise
        with reporting(progress) as report:
            self._core.save(step, given, [], values, fields, fill, self._memory, self._threads, report)
        self._held = stored.sources if fields["hold"] == "reference" else []
        if before is not None:
            raise before

    def _failed_before(self) -> Exception | None:
        """Waits for the save before. By several processes its failure is raised when this save has begun: the others may have begun it."""
        if self._second == "refuse" and not self._core.idle:
            return None
        try:
            self.wait()
        except Error as error:
            if self._ranks is None:
                raise
            return error
        return None

    def _files(self, stored: Stored, metrics: Mapping[str, float] | None, iterator_state: Any,
               items: Mapping[str, Any]) -> list[tuple[str, str | bytes]]:
        files: list[tuple[str, str | bytes]] = []
        if not isinstance(items, Mapping):
            raise InvalidArgumentError("items are a dict of trees", found=repr(items))
        for name, tree in items.items():
            if name == self._item:
                raise InvalidArgumentError("an item has the name of the tree's own", found=repr(name))
            files += files_of_item(name, tree)
        if metrics is not None:
            files.append((METRICS, json_text(metrics, "metrics", nan=True)))
        if iterator_state is not None:
            files += files_of_iterator(iterator_state, *self.position())
        tree = {**(stored.document if self._format != "orbax" else {}), **stored.kinds}
        if tree:
            files.append((f"{self._item}/{TREE}", json.dumps({"version": 1, **tree})))
        return files

    def _hold_for(self, stored: Stored, background: bool | None) -> str:
        if not (self._background if background is None else background):
            return "blocking"
        lies = all(s.producer is None for s in stored.sources)
        if self._hold == "reference":
            if not lies:
                raise InvalidArgumentError("by reference only what lies in the host's memory can be held", hint="hold='copy'")
            return "reference" if _outlives_donation(stored) else "copy"
        if self._hold == "copy" or sum(_nbytes(s) for s in stored.sources) <= self._staging:
            return self._hold
        return "reference" if lies and stored.only_jax and _outlives_donation(stored) else "blocking"

    def _kept_by_predicate(self, step: int, metrics: Mapping[str, float] | None, metadata: Mapping[str, Any] | None) -> list[int]:
        if self._keep_if is None or self.position()[0] != 0:
            return []
        new = StepInfo(step, self._core.name_of(step), True, "about to be saved", False, datetime.now(timezone.utc), 0, 0,
                       dict(metrics or {}), dict(metadata or {}))
        known = [info for info in self.steps() if info.complete and info.step != step]
        return [info.step for info in [*known, new] if self._keep_if(info)]

    def wait(self, timeout: float | None = None) -> None:
        """Returns when nothing is being saved. Raises what made the last save fail, once; UnavailableError after `timeout` seconds."""
        try:
            self._core.wait(timeout)
        finally:
            if self._opened is not None and self._opened.idle:
                self._held = []
                self._say_warnings()

    def _say_warnings(self) -> None:
        """What the last save had to say, as that a broken step was set aside: once."""
        last = self._core.last()
        said = last["step"], last["seconds"]
        if last["warnings"] and said != self._warned_of:
            self._warned_of = said
            for text in last["warnings"]:
                warnings.warn(text, stacklevel=3)

    def close(self) -> None:
        """Waits, raises what failed, and gives the memory back. Twice is fine."""
        if self._opened is None:
            return
        _managers.discard(self)
        try:
            self.wait()
        finally:
            try:
                self._core.close()  # whatever interrupts that wait: not with the GIL held, which the background may need
            finally:
                self._opened = None
                if self._preemption is not None:
                    self._preemption.end()

    def reached_preemption(self, step: int) -> bool:
        """Whether the signal of `preemption` has come, to any of the processes: after step `step`, which all ask about. Then
        save(step, state, within=20), wait(), and end. Also whoever asks Orbax so."""
        if self._preemption is None:
            raise InvalidArgumentError("the manager was given no signal", hint="preemption=signal.SIGTERM")
        said = b"%d %d" % (_step_number(step), self._preemption.noted)
        if self._ranks is None:
            return self._preemption.noted
        return any(one.endswith(b" 1") for one in self._ranks.all_gather(said))

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except Exception as lost:
            if error is None:
                raise
            # What ended the block counts more; but a lost step is said.
            error.__notes__ = [*getattr(error, "__notes__", []), f"and a save in the background failed: {lost}"]
            print(f"shardwright: a save in the background failed: {lost}", file=sys.stderr)

    def __del__(self) -> None:
        if getattr(self, "_opened", None) is not None:
            self.close()

    # ---- what is there

    def steps(self) -> list[StepInfo]:
        """All that have a step's name, in order, complete or not."""
        return [_info(row, self._root) for row in self._core.steps()]

    def latest(self) -> int | None:
        """The newest step that is complete."""
        row = self._core.latest()
        return None if row is None else int(row["step"])

    def best(self) -> int | None:
        """The best complete step by best_metric, of equals the newest; None when no step has it."""
        row = self._best_row()
        return None if row is None else int(row["step"])

    def _best_row(self) -> dict[str, Any] | None:
        metric, largest = self._best
        if metric is None:
            raise InvalidArgumentError("the manager was given no best_metric")
        return self._core.best(metric, largest)

    def info(self, step: int | Literal["latest", "best"] | None = None) -> StepInfo:
        """Of a complete step. NotFoundError naming those that are there."""
        if step == "best":
            row = self._best_row()
            if row is None:
                raise NotFoundError("no step has the metric", path=self._root, expected=self._best[0])
        elif step is None or step == "latest":
            row = self._core.latest()  # raises where nobody can tell which that is
            if row is None:
                raise NotFoundError("there is no complete step", path=self._root,
                                    found=", ".join(f"{info.name}: {info.proof}" for info in self.steps()) or None)
        else:
            number = _step_number(step)
            row = self._core.step(number)
            if row is None:
                there = ", ".join(map(str, self.all_steps()))
                raise NotFoundError(f"there is no step {number}", path=self._root, hint=f"there are {there}" if there else None)
            if not row["complete"]:
                raise CorruptError(f"step {number} is not complete", path=os.path.join(self._root, row["name"]), found=row["proof"])
        return _info(row, self._root)

    def path(self, step: int | Literal["latest", "best"] | None = None) -> str:
        """The directory of a complete step."""
        return os.path.join(self._root, self.info(step).name)

    def metrics(self, step: int | Literal["latest", "best"] | None = None) -> dict[str, float]:
        """What save() was given, of a complete step."""
        return self.info(step).metrics

    def metadata(self, step: int | Literal["latest", "best"] | None = None) -> dict[str, Any]:
        """What save() was given, of a complete step."""
        return self.info(step).metadata

    def iterator_state(self, step: int | Literal["latest", "best"] | None = None, *, every: bool = False) -> Any:
        """What this process's data iterator gave at that step: text and bytes as they were, the rest as JSON has it (tuples are lists); None when it gave
        nothing. Of a step that Orbax saved: JSON, and text that is none.

        every: the states of all processes that saved, by their index: for a job of another size, which has to share them out anew. Without it that
        is a NotFoundError.
        """
        folder = os.path.join(self.path(step), "iterator")
        states = states_of_iterators(folder)
        if every:
            return [read_state(states[key]) for key in sorted(states)]
        if not states:
            return None
        mine = self.position()
        if mine not in states:
            raise NotFoundError("the number of processes is another than when the iterators were saved", path=folder,
                                found=f"{len(states)} of {next(iter(states))[1]}", expected=f"process {mine[0]} of {mine[1]}",
                                hint="iterator_state(every=True) gives all of them")
        return read_state(states[mine])

    # ---- restoring

    def open(self, step: int | Literal["latest", "best"] | None = None) -> Checkpoint:
        """The tensors of a step, lazily. See shardwright.open()."""
        return open_checkpoint(_core.tensors_of_step(self.path(step), self._item))

    def restore(self, step: int | Literal["latest", "best"] | None = None, target: Any = None, *, item: str | None = None, partial: bool = False,
                cast: bool = False, verify: bool = False, progress: Progress = None) -> Any:
        """The tree of a step, wherever it was saved: other devices, another number of processes, sharded or not.

        step: a number; None or "latest": the newest complete one; "best": by best_metric; by several processes that which process 0 finds. Each reads
            what its part of the target needs, and nothing is sent between them.
        target: None: the tree as it was saved, with NumPy arrays. Else a tree of the same names, each leaf saying what it is to be:
            a jax.Array or jax.ShapeDtypeStruct: an array with its sharding; a NumPy array; a tensor of PyTorch, on its device; a DTensor, on its
            mesh; a number, text or None: the one that was saved, of the type that was saved;
            `...`, or an empty container: whatever was saved there, a leaf or a subtree. Nothing of the target is changed.
        item: of another item of the step than the tree that save() was given.
        partial: the checkpoint may have more than the target asks for. Never less.
        cast: floating types are converted to the target's; else another dtype is a mismatch.
        verify: every byte is held against the checksums of the step first.

        Everything is checked before the first value is read: InvalidArgumentError names all that is missing, unexpected or different. Also
        NotFoundError, CorruptError.
        """
        with self.opened(self.agreed(step), item=item, verify=verify) as (checkpoint, noted):
            if target is None:
                names = [note.name for note in noted.notes if note.has_array]
                return noted.tree(checkpoint.load(names, memory=self._memory, threads=self._threads, progress=progress))
            leaves, rebuild = flatten(target)
            report = Report(checkpoint.path, partial, cast)
            return rebuild(fill_target(checkpoint, noted, leaves, report, self._memory, self._threads, progress))

    @contextmanager
    def opened(self, step: int | Literal["latest", "best"] | None = None, *, item: str | None = None,
               verify: bool = False) -> Iterator[tuple[Checkpoint, Noted]]:
        """The tensors of a step, lazily, and its tree: where each leaf stands."""
        directory = self.path(step)
        if item is not None and not os.path.isdir(os.path.join(directory, item)):
            raise NotFoundError(f"the step has no item '{item}'", path=directory)
        place = _core.tensors_of_step(directory, item or self._item)
        if verify:
            _verify(place, directory)
        with open_checkpoint(place) as checkpoint:
            yield checkpoint, _noted(checkpoint, place if os.path.isdir(place) else os.path.dirname(place))

    def agreed(self, step: int | Literal["latest", "best"] | None) -> int | Literal["latest", "best"] | None:
        """By several processes: the number that process 0 finds for "latest" (or None) and "best". Collective, unless it is given a number.
        Where process 0 cannot find it, it raises why, and the others UnavailableError."""
        if not (step is None or step == "latest" or step == "best"):
            return _step_number(step)
        if self._ranks is None:
            return step
        said: bytes = b""
        lost: Error | None = None
        if self._ranks.index == 0:
            try:
                found = self.best() if step == "best" else self.latest()
                said = b"" if found is None else b"%d" % found
            except Error as error:  # the others wait for this process
                said, lost = b"!" + str(error).encode(errors="replace"), error
        chosen = self._ranks.all_gather(said)[0]
        if lost is not None:
            raise lost
        if chosen.startswith(b"!"):
            raise UnavailableError("process 0 cannot say which step", path=self._root, found=chosen[1:].decode())
        return int(chosen) if chosen else step

    # ---- keeping and removing

    def pin(self, step: int) -> None:
        """Never removed by a rule, until unpin()."""
        _core.pin_step(self._root, self.info(step).name, True)

    def unpin(self, step: int) -> None:
        """The rules decide about it again."""
        _core.pin_step(self._root, self.info(step).name, False)

    def delete(self, step: int) -> None:
        """Removes a step, whatever the rules. InvalidArgumentError for the newest complete one."""
        self.wait()
        number = _step_number(step)
        row = self._core.step(number)
        if row is None:
            raise NotFoundError(f"there is no step {number}", path=self._root)
        if number == self.latest():
            raise InvalidArgumentError("the newest step is not removed", found=str(number))
        _core.remove_step(self._root, row["name"])

    def prune(self, *, older_than: float = 3600, dry_run: bool = False) -> list[str]:
        """Removes what broken runs left, and branches; says what. older_than: seconds for which nothing may have changed in what has no lock;
        of a step that was finished once, a minute is enough."""
        self.wait()
        return [f"{name}: {what}" for name, what, _, _ in self._core.prune(older_than, dry_run)]

    # ---- the names Orbax has

    def all_steps(self) -> list[int]:
        """Numbers of the complete steps, in order."""
        return [info.step for info in self.steps() if info.complete]

    def latest_step(self) -> int | None:
        """latest()."""
        return self.latest()

    def best_step(self) -> int | None:
        """best(), and without a best_metric the latest."""
        return self.latest() if self._best[0] is None else self.best()

    def wait_until_finished(self) -> None:
        """wait(), for as long as it takes."""
        self.wait()


class Preemption:
    """Notes a signal instead of what it did before, until end()."""

    def __init__(self, number: int):
        self.noted = False
        self._number = number
        try:
            self._before = signal.signal(number, self._note)
        except ValueError as error:
            raise InvalidArgumentError("a signal cannot be noted so", found=str(error), hint="open the manager in the main thread") from None

    def _note(self, number: int, frame: Any) -> None:
        self.noted = True

    def end(self) -> None:
        """What was there before is put back, if nobody else has taken the signal meanwhile."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(self._number) == self._note:
            signal.signal(self._number, self._before)


_managers: weakref.WeakSet[CheckpointManager] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    """Saves that are under way are finished; failures are said."""
    for manager in list(_managers):
        try:
            manager.close()
        except Exception:
            sys.excepthook(*sys.exc_info())


def root_of(directory: Any) -> str:
    """The absolute path of a run. InvalidArgumentError for what is none, UnsupportedError for addresses of object stores."""
    path = os.fspath(directory) if isinstance(directory, os.PathLike) else directory
    if not isinstance(path, str) or not path or "\0" in path or not is_unicode(path):
        raise InvalidArgumentError("a run needs a directory", found=repr(directory), expected="a path, as text or os.PathLike; '.' is the present one")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise UnsupportedError("runs are kept in directories; addresses are not known yet", found=repr(path), hint="mount the bucket, and give its path")
    if path.startswith("~"):
        raise InvalidArgumentError("'~' is not expanded", found=repr(path), hint="os.path.expanduser(...) does; './~' is a directory of that name")
    return os.path.abspath(path)


def _check_rule(name: str, number: Any, kind: Any, expected: str) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, kind) or not 1 <= number < 1 << 31):
        raise InvalidArgumentError(f"{name} keeps nothing, or cannot be meant", found=repr(number), expected=f"{expected}, or None for no such rule",
                                   hint="the newest step is never removed")


def _step_number(step: Any) -> int:
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < 1 << 63:
        raise InvalidArgumentError("a step is a whole number, 0 or more", found=repr(step))
    return number


def _nbytes(source: Source) -> int:
    elements, width = block_of(source.dtype)
    return -(-math.prod(source.shape) // elements) * width


def _outlives_donation(stored: Stored) -> bool:
    if not stored.any_jax:
        return True
    from .jax.donation import views_survive_donation
    return views_survive_donation()


def _info(row: Mapping[str, Any], root: str) -> StepInfo:
    time = datetime.fromtimestamp(row["time_ns"] / 1e9, timezone.utc)
    return StepInfo(int(row["step"]), row["name"], row["complete"], row["proof"], row["pinned"], time, row["nbytes"], row["shared_nbytes"],
                    _metrics_of_row(row, root), json.loads(row["metadata"]))


def _metrics_of_row(row: Mapping[str, Any], root: str) -> dict[str, float]:
    """An infinite one is the largest number in what the core tells."""
    metrics = dict(row["metrics"])
    if any(abs(value) == sys.float_info.max for value in metrics.values()):
        with open(os.path.join(root, row["name"], METRICS), encoding="utf-8") as file:
            metrics |= {name: value for name, value in json.load(file).items() if name in metrics and isinstance(value, float)}
    return metrics


def _verify(place: str, directory: str) -> None:
    found = verify_checkpoint(place, full=True, against=os.path.join(directory, "shardwright.manifest.json"))
    if found.findings:
        raise found.findings[0]


def _noted(checkpoint: Checkpoint, folder: str) -> Noted:
    """The tree that was saved; of a checkpoint without one, its names."""
    document = beside = _read_tree(os.path.join(folder, TREE))
    text = checkpoint._core.value("orbax")
    if isinstance(text, str):
        document = json.loads(text)["items"].get("")
    if document and "leaves" in document:
        return noted_of(document, beside)
    return Noted([Note(((name, False),), "np.ndarray", True, None, None) for name in checkpoint])


def _read_tree(path: str) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except ValueError as error:
        raise CorruptError("the note of a tree is no JSON", path=path, found=str(error)) from None
    if not isinstance(found, dict):
        raise CorruptError("the note of a tree is no JSON object", path=path)
    return found
