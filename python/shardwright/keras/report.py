"""Progress of work that is many small reads."""
from __future__ import annotations

import importlib.util
import sys
from typing import Any

from ..errors import AbortedError
from ..progress import Progress

# From here on "auto" shows a bar.
_LONG_BYTES = 1 << 30


def shown(progress: Progress | str, nbytes: int) -> Progress:
    """What "auto" means for that much work."""
    if not isinstance(progress, str):
        return progress
    if progress != "auto":
        raise TypeError(f"progress must be 'auto', None, True, a callable or a bar such as tqdm's, not {progress!r}")
    stderr: Any = sys.stderr
    seen = stderr is not None and hasattr(stderr, "isatty") and stderr.isatty()
    return True if nbytes >= _LONG_BYTES and seen and importlib.util.find_spec("tqdm") is not None else None


class Report:
    """Tells a callback (None: nobody) how much of `total` bytes is done, over several pieces of work."""

    def __init__(self, callback: Any, phase: str, total: int):
        self._callback, self._phase, self._total, self._done = callback, phase, total, 0

    def part(self) -> Any:
        """For the next piece of work: its progress added to what is done."""
        if self._callback is None:
            return None
        return lambda phase, done, total: self._callback(self._phase, min(self._total, self._done + done), self._total)

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._callback is not None and self._callback(self._phase, min(self._total, self._done), self._total) is False:
            raise AbortedError("stopped on request")
