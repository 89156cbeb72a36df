"""The processes of a job: which one this is, and how they speak with one another.

What is already there is used: jax.distributed or torch.distributed, when they are initialised. Plain processes meet in a directory.
No framework is imported here: one that is not loaded has no processes.
"""
from __future__ import annotations

import atexit
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from . import _core
from .errors import InvalidArgumentError, UnavailableError, UnsupportedError

# Of a launcher: number of the process, number of processes.
_LAUNCHERS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("RANK", "WORLD_SIZE"))
# Values of a store go through messages of a few MiB at most.
_MOST_BYTES = 1 << 20


class Ranks:
    """All processes of a job. Calls are collective: every process makes the same ones, in the same order, on one thread.

    index, count: which process this is, and of how many. timeout: seconds that a call waits for the others; UnavailableError names those
    that are missing then. Once one is lost, late or interrupted, every later call fails on all of them, with the same error: leave_ranks()
    on all that live, and they may join anew.
    """

    def __init__(self, core: Any):
        self._held = core

    @property
    def _core(self) -> Any:
        if self._held is None:
            raise UnavailableError("this process has left these ranks", hint="join_ranks() gives new ones")
        return self._held

    @property
    def index(self) -> int:
        """Which process this is, from 0."""
        return int(self._core.index)

    @property
    def count(self) -> int:
        """Of how many."""
        return int(self._core.count)

    @property
    def timeout(self) -> float:
        """Seconds that a call waits for the others; may be set."""
        return float(self._core.timeout)

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._core.timeout = float(seconds)

    def all_gather(self, mine: bytes) -> list[bytes]:
        """What every process gives, by index."""
        gathered: list[bytes] = self._core.all_gather(bytes(mine))
        return gathered

    def barrier(self) -> None:
        """Returns when all have come. UnavailableError when some have not in time."""
        self._core.all_gather(b"")

    def __repr__(self) -> str:
        return "<a process that has left>" if self._held is None else f"<process {self.index} of {self.count}>"


_joined: Ranks | None = None
_of_frameworks: dict[int, tuple[Any, Ranks]] = {}
_channels = itertools.count()


def join_ranks(directory: str | os.PathLike[str], index: int | None = None, count: int | None = None, *, timeout: float = 60) -> Ranks:
    """Meets the other processes of a job in a directory that all see. From then on this process is number `index` of `count`.
    Ranks that it joined before it leaves first.

    directory: made where it is missing; one job at a time meets there. What an earlier job left is told apart, and removed.
    index, count: None: as mpirun, srun or torchrun tell by the environment.
    timeout: seconds in which all must have come: UnavailableError names those that have not, or says that another job meets there.

    Raises InvalidArgumentError, on all, when two come under one index or with different counts; and when nothing says which process this is.
    """
    global _joined
    if (index is None) != (count is None):
        raise InvalidArgumentError("give both index and count, or neither")
    if index is None or count is None:
        index, count = _of_launcher(os.environ)
    leave_ranks()
    _joined = Ranks(_core.meet_in_directory(os.fspath(directory), index, count, float(timeout)))
    return _joined


def leave_ranks() -> None:
    """This process is by itself again, or one of those that JAX or PyTorch has connected, which then begin anew: after a failure all of
    them call it. Ranks from before are of no more use."""
    global _joined
    for ranks in ([] if _joined is None else [_joined]) + [ranks for _, ranks in _of_frameworks.values()]:
        ranks._held = None
    _joined = None
    _of_frameworks.clear()


@atexit.register
def _end() -> None:
    """While there is an interpreter to end in."""
    leave_ranks()


def _of_launcher(environment: Mapping[str, str]) -> tuple[int, int]:
    for index, count in _LAUNCHERS:
        if index in environment and count in environment:
            numbers = environment[index], environment[count]
            if not all(number.isdecimal() for number in numbers):
                raise InvalidArgumentError("the environment has no numbers of processes", found=f"{index}={numbers[0]!r}, {count}={numbers[1]!r}")
            return int(numbers[0]), int(numbers[1])
    raise InvalidArgumentError("no launcher says which process this is", hint="give index and count")


def get_process_index() -> int:
    """Number of this process among those of the job: of join_ranks(), jax.distributed or torch.distributed; 0 where there are no others."""
    return _position()[0]


def get_process_count() -> int:
    """Number of processes of the job; 1 where there are no others."""
    return _position()[1]


def _position() -> tuple[int, int]:
    if _joined is not None:
        return _joined.index, _joined.count
    jax, torch = _jax_state(), _torch_group()
    if jax is not None:
        return int(jax.process_id), int(jax.num_processes)
    return (int(torch.get_rank()), int(torch.get_world_size())) if torch is not None else (0, 1)


def current_ranks() -> Ranks | None:
    """The processes that get_process_count() counts; None for a process by itself. The first call is collective."""
    if _joined is not None:
        return _joined
    jax, torch = _jax_state(), _torch_group()
    if jax is not None:
        return _remembered(jax.client, lambda: _of_store(*_position(), *_calls_of_jax(jax.client)))
    if torch is not None:
        store = _torch_store()
        return _remembered(store, lambda: _of_store(*_position(), *_calls_of_torch(store)))
    return None


def required_ranks(what: str) -> Ranks:
    """current_ranks(), for values that are spread over processes."""
    ranks = current_ranks()
    if ranks is None:
        raise UnsupportedError(f"{what} is spread over processes, and nothing connects them",
                               hint="initialise jax.distributed or torch.distributed, or call shardwright.join_ranks()")
    return ranks


def _remembered(client: Any, make: Callable[[], Ranks]) -> Ranks:
    held = _of_frameworks.get(id(client))
    if held is None or held[0] is not client:
        held = _of_frameworks[id(client)] = client, make()
    return held[1]


# ---- stores of frameworks

Put = Callable[[str, bytes], None]
Take = Callable[[str], "bytes | None"]


def _of_store(index: int, count: int, put: Put, take: Take) -> Ranks:
    """Values longer than a message are cut: the key itself comes last, and says into how many. (Not below it: JAX deletes with a key all below.)"""
    def put_cut(key: str, value: bytes) -> None:
        parts = [value[at:at + _MOST_BYTES] for at in range(0, len(value), _MOST_BYTES)] if len(value) > _MOST_BYTES else []
        for number, part in enumerate(parts):
            put(f"{key}.{number}", part)
        put(key, b"%d:" % len(parts) + (b"" if parts else value))

    def take_cut(key: str) -> bytes | None:
        head = take(key)
        if head is None:
            return None
        count, _, value = head.partition(b":")
        parts = [take(f"{key}.{number}") for number in range(int(count))]
        if None in parts:
            raise UnavailableError("a part of a message is missing", found=key)
        return b"".join(part for part in parts if part is not None) if parts else value
    return Ranks(_core.ranks_of_store(index, count, put_cut, take_cut, f"shardwright/{next(_channels)}"))


def _jax_state() -> Any:
    """State of jax.distributed, when it is initialised."""
    jax = sys.modules.get("jax._src.distributed")
    state = getattr(jax, "global_state", None)
    return state if state is not None and getattr(state, "client", None) is not None else None


def _calls_of_jax(client: Any) -> tuple[Put, Take]:
    def take(key: str) -> bytes | None:
        try:
            value: bytes = client.key_value_try_get_bytes(key)
        except Exception as error:  # of jaxlib's own class, which has no code
            if "NOT_FOUND" not in str(error):
                raise
            return None
        client.key_value_delete(key)
        return value
    return client.key_value_set_bytes, take


def _torch_group() -> Any:
    """torch.distributed, when it is initialised."""
    torch = sys.modules.get("torch.distributed")
    return torch if torch is not None and torch.is_available() and torch.is_initialized() else None


def _torch_store() -> Any:
    return sys.modules["torch.distributed"].distributed_c10d._get_default_store()  # type: ignore[attr-defined]


def _calls_of_torch(store: Any) -> tuple[Put, Take]:
    def take(key: str) -> bytes | None:
        if not store.check([key]):
            return None
        value: bytes = store.get(key)
        store.delete_key(key)
        return value
    return lambda key, value: store.set(key, value), take
