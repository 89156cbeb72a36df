"""A training run that is killed again and again: training.py ROOT KILLS SEED.

Children are forked from this process, which has loaded everything: so a kill costs what the child does, not what Python takes to begin. After each
kill the last three steps that count as complete, and three others, must be what was saved, and in the end all of them, and the run must be, bit for bit,
one that was never stopped.
"""
import collections
import hashlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable

import numpy as np

import shardwright

END = 10**6
ELEMENTS = 100_000


def begin() -> dict:
    return {"w": np.linspace(0, 1, ELEMENTS), "m": np.zeros(ELEMENTS, "f4"), "seen": 0}


def train(state: dict, step: int) -> dict:
    w = state["w"] * 0.999 + np.sin(state["w"] + step) * 0.01
    return {"w": w, "m": (state["m"] * 0.9 + w).astype("f4"), "seen": state["seen"] + step}


def digest(state: dict) -> str:
    return hashlib.sha256(state["w"].tobytes() + state["m"].tobytes() + str(state["seen"]).encode()).hexdigest()


def manager_of(root: str) -> shardwright.CheckpointManager:
    return shardwright.CheckpointManager(root, keep_last=2, keep_every=7, best_metric="loss", keep_best=1)


def run(root: str, say: int, last: int) -> None:
    """From the latest step on. Says the number of each step when its save has begun."""
    with manager_of(root) as manager:
        latest = manager.latest()
        state = begin() if latest is None else manager.restore(target=begin())
        for step in range(0 if latest is None else latest + 1, last + 1):
            state = train(state, step)
            manager.save(step, state, metrics={"loss": float((step * 37) % 11)}, iterator_state={"at": step})
            os.write(say, b"%d\n" % step)
            if step % 4 == 3:
                manager.prune(older_than=0)


class Expected:
    """What each step should be, computed without a stop."""

    def __init__(self) -> None:
        self._digests: list[str] = []
        self._state = begin()

    def __getitem__(self, step: int) -> str:
        while len(self._digests) <= step:
            self._state = train(self._state, len(self._digests))
            self._digests.append(digest(self._state))
        return self._digests[step]


def fork(root: str, last: int) -> tuple[int, int]:
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hear)
        try:
            run(root, say, last)
            os._exit(0)
        except BaseException as error:
            print(f"training: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    os.close(say)
    return pid, hear


def stop(root: str, dice: random.Random) -> tuple[int, int]:
    """Lets a child begin some saves, and kills it a moment after one has begun; how many it began, and the last one's number."""
    pid, hear = fork(root, END)
    begun, last, wanted = 0, -1, dice.randint(1, 4)
    with os.fdopen(hear, "rb") as lines:
        while begun < wanted:
            line = lines.readline()
            assert line, "the child ended by itself"
            begun, last = begun + 1, int(line)
        time.sleep(dice.uniform(0, 0.02) * dice.random() ** 2)  # most within the save that has begun
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        rest = lines.read().split()
    return begun + len(rest), int(rest[-1]) if rest else last


def check(root: str, expected: Expected, last: int, older: Callable[[list[int]], list[int]] = list) -> bool:
    """Whether the last save that began was committed. Every step that counts is what was saved, of those before the last three those that `older` takes;
    none that was committed long since is lost."""
    with manager_of(root) as manager:
        there = manager.all_steps()
        assert last <= 0 or there, "no step is left"
        assert not there or there[-1] >= last - 1, f"step {last - 1} was done before {last} began, but the latest is {there[-1]}"
        for step in [*older(there[:-3]), *there[-3:]]:
            state = manager.restore(step, target=begin(), verify=step == there[-1])
            assert digest(state) == expected[step], f"step {step} is not what was saved"
            assert manager.iterator_state(step) == {"at": step}
    return bool(there) and there[-1] == last


def main(root: str, kills: int, seed: int) -> None:
    dice, expected, counts = random.Random(seed), Expected(), collections.Counter()

    def some(steps: list[int]) -> list[int]:  # all of them after each kill would be most of what many kills take
        return dice.sample(steps, min(3, len(steps)))

    for _ in range(kills):
        begun, last = stop(root, dice)
        counts["saves"] += begun
        counts["after the commit" if check(root, expected, last, some) else "between save and commit"] += 1
    with manager_of(root) as manager:
        last = (manager.latest() or 0) + 3
    pid, hear = fork(root, last)
    with os.fdopen(hear, "rb") as lines:
        lines.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert check(root, expected, last), "the run did not get to its end"
    with manager_of(root) as manager:
        manager.prune(older_than=0)
    left = [name for name in os.listdir(root) if not name.isdigit()]
    assert not left, left
    print(f"kills: {kills}, saves begun: {counts['saves']}, killed between save and commit: {counts['between save and commit']}, "
          f"after the commit: {counts['after the commit']}, seed {seed}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
