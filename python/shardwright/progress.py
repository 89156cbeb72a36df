"""How far long work is: told to a callback, or shown by a bar."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Union, runtime_checkable


@runtime_checkable
class Bar(Protocol):
    """What is used of tqdm's bars."""

    total: Any
    n: Any

    def update(self, n: Any = 1) -> Any: ...

    def refresh(self) -> Any: ...


Callback = Callable[[str, int, int], Any]
Progress = Union[None, bool, Callback, Bar]
"""None or False: nothing. True: a bar of tqdm, which must be installed. A callable: called as progress(phase, done, total), in bytes,
about ten times a second on the thread that asked for the work; when it returns False the work stops with AbortedError, and what it raises
stops the work too. A bar of tqdm or one like it: total and n are set to bytes; it is not closed. Phases: "copy", "read", "hash", ..."""


class _OnBar:
    def __init__(self, bar: Bar):
        self.bar, self.phase = bar, ""

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase == "sync":  # the last bytes on their way to the disk: nothing to count
            return
        if phase != self.phase:
            self.phase, self.bar.n = phase, 0
            describe = getattr(self.bar, "set_description_str", None)
            if describe is not None:
                describe(phase, refresh=False)
        self.bar.total = total
        self.bar.update(done - self.bar.n)

    def finish(self) -> None:
        if self.bar.total:
            self.bar.update(self.bar.total - self.bar.n)
        self.bar.refresh()


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Callback | None]:
    """What the engine is to call while the block runs."""
    if progress is None or progress is False:
        yield None
    elif progress is True:
        from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
        with tqdm(unit="B", unit_scale=True, unit_divisor=1024, total=0) as bar:
            shown = _OnBar(bar)
            yield shown
            shown.finish()
    elif isinstance(progress, Bar):
        shown = _OnBar(progress)
        yield shown
        shown.finish()
    elif callable(progress):
        yield progress
    else:
        raise TypeError(f"progress must be None, True, a callable or a bar such as tqdm's, not {type(progress).__name__}")
