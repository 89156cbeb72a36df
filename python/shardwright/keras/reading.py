"""Values from a checkpoint, one variable at a time, in bounded memory."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import Array, is_float
from ..memory import Arena
from . import backends
from .backends import Landing
from .matching import is_bytes_of_float8
from .report import Report
from .stored import Located

# Variables below this size are read several at a time.
_SMALL_BYTES = 16 << 20
# What the engine is given in any case, as far as there is so much.
_LEAST_MEMORY = 16 << 20


@dataclass(eq=False)
class Want:
    """A value that a variable is to get."""

    located: Located
    variable: Any
    certain: bool  # that the value goes to this variable

    @property
    def nbytes(self) -> int:
        return int(np.prod(backends.shape_of(self.variable), dtype=object)) * backends.dtype_of(self.variable).itemsize


class Reading:
    """Values for variables: large ones when they are asked for, small ones with their neighbours."""

    def __init__(self, free_first: bool, memory: int, threads: int, report: Report):
        self.free_first, self.threads, self.report = free_first, threads, report
        self.shared = max(64 << 10, min(32 << 20, memory // 8))
        self.memory = max(memory - self.shared, min(memory, _LEAST_MEMORY))
        self.batch_of: dict[Want, list[Want]] = {}
        self.ready: dict[Want, Any] = {}
        self.arena = Arena()

    def plan(self, wants: list[Want]) -> None:
        batch: list[Want] = []
        for want in wants:
            small = want.nbytes < min(_SMALL_BYTES, self.shared)
            if not small or sum(s.nbytes + 64 for s in batch) + want.nbytes > self.shared:
                batch = []
            self.batch_of[want] = batch if small else [want]
            if small:
                batch.append(want)

    def take(self, want: Want) -> Any:
        if want not in self.ready:
            waiting = self.batch_of.pop(want, [want])
            for other in waiting:
                self.batch_of.pop(other, None)
            self.read(waiting)
        return self.ready.pop(want)

    def read(self, wants: list[Want]) -> None:
        if len(wants) == 1 and backends.on_torch_device(wants[0].variable):
            want, = wants
            self.ready[want] = backends.fill_torch_device(want.variable, lambda start, array: self.fill([(want.located, start, array)]))
            return
        apart = [want for want in wants if backends.on_torch_device(want.variable)]
        for want in apart:
            self.read([want])
        wants = [want for want in wants if want not in apart]
        landings: list[tuple[Want, Landing]] = []
        for want in wants:
            landings.append((want, backends.land(want.variable, self.arena.empty, self.free_first and want.certain)))
        self.fill([(want.located, start, array) for want, landing in landings for start, array in landing.boxes])
        for want, landing in landings:
            self.ready[want] = landing.finish()

    def fill(self, boxes: list[tuple[Located, tuple[int, ...], Array]]) -> None:
        """Reads boxes, each file once from front to back, converting where dtypes differ."""
        jobs: dict[int, list[tuple[str, tuple[int, ...], Array]]] = {}
        after: list[tuple[Array, Array]] = []
        checkpoints: dict[int, Any] = {}
        for located, start, array in boxes:
            into = array
            have = located.tensor.dtype
            if is_bytes_of_float8(have, array.dtype):
                into = array.view(np.uint8)
            elif have != array.dtype and not (is_float(have) and is_float(array.dtype)):
                into = np.empty(array.shape, have)
                after.append((array, into))
            checkpoints[id(located.checkpoint)] = located.checkpoint
            jobs.setdefault(id(located.checkpoint), []).append((located.tensor.name, start, into))
        for key, group in jobs.items():
            checkpoints[key].read(group, memory=self.memory, threads=self.threads, progress=self.report.part())
        for array, values in after:
            array[...] = values
        self.report.add(sum(located.tensor.dtype.itemsize * array.size for located, _, array in boxes))
