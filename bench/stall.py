"""What saving a training state costs the training: the call, and the steps after it.

Usage: python bench/stall.py [--mb 1000] [--rounds 5] [--dir DIR] [--peers]

JAX arrays on the CPU, donated by every step or not; shardwright by copy and by reference, without a background, and (--peers) Orbax's manager. Beside
them one memory copy into memory that has been touched. Rivals take turns; minima and medians are printed, and one JSON object at the end.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

import numpy as np

STEPS_AFTER = 3


def memory_copy(nbytes):
    source, target = np.ones(nbytes, "u1"), np.ones(nbytes, "u1")
    begun = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - begun


class Ours:
    def __init__(self, root, **options):
        import shardwright
        self.manager = shardwright.CheckpointManager(root, keep_last=2, **options)

    def save(self, step, state):
        self.manager.save(step, state)

    def wait(self):
        self.manager.wait()


class Theirs:
    def __init__(self, root):
        import orbax.checkpoint as ocp
        self.arguments = ocp.args.StandardSave
        self.manager = ocp.CheckpointManager(root, options=ocp.CheckpointManagerOptions(max_to_keep=2))

    def save(self, step, state):
        self.manager.save(step, args=self.arguments(state))

    def wait(self):
        self.manager.wait_until_finished()


def state_of(mb):
    import jax.numpy as jnp
    return {f"layer{i}": jnp.full((mb * 1000 * 1000 // 4 // 8,), float(i), jnp.float32) for i in range(8)}


def timed(train, state):
    import jax
    begun = time.perf_counter()
    state = jax.block_until_ready(train(state))
    return state, time.perf_counter() - begun


def measure(rival, step, state, train):
    """Seconds of the call, of the steps after it beyond what a step takes, and until the step is on disk."""
    usual = []
    for _ in range(STEPS_AFTER):
        state, seconds = timed(train, state)
        usual.append(seconds)
    begun = time.perf_counter()
    rival.save(step, state)
    call = time.perf_counter() - begun
    after = 0.0
    for _ in range(STEPS_AFTER):
        state, seconds = timed(train, state)
        after += seconds - min(usual)
    rival.wait()
    return state, {"call": call, "after": max(after, 0.0), "whole": time.perf_counter() - begun}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mb", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--dir", default=None)
    arguments.add_argument("--peers", action="store_true")
    given = arguments.parse_args()
    import jax
    root = tempfile.mkdtemp(dir=given.dir)
    results = {}
    try:
        rivals = {"copy": lambda p: Ours(p, hold="copy"), "reference": lambda p: Ours(p, hold="reference"),
                  "blocking": lambda p: Ours(p, background=False)} | ({"orbax": Theirs} if given.peers else {})
        for donated in (False, True):
            kept = {}
            train = jax.jit(lambda tree: jax.tree.map(lambda x: x * 1.0001, tree), donate_argnums=(0,) if donated else ())
            made = {name: make(os.path.join(root, f"{name}-{donated}")) for name, make in rivals.items()}
            for number in range(given.rounds + 1):  # the first warms up: compiles, and takes the staging memory
                for name, rival in made.items():
                    _, seconds = measure(rival, number, state_of(given.mb), train)
                    if number:
                        kept.setdefault(name, []).append(seconds)
            results["donated" if donated else "kept"] = {
                name: {part: [min(values), statistics.median(values)] for part in ("call", "after", "whole")
                       for values in [[row[part] for row in rows]]} for name, rows in kept.items()}
        copies = [memory_copy(given.mb * 1000 * 1000) for _ in range(given.rounds)]
        results["memory copy"] = [min(copies), statistics.median(copies)]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for case, rows in results.items():
        if case == "memory copy":
            continue
        for name, parts in rows.items():
            print(f"{case:8} {name:10} " + "  ".join(f"{part} {low:.3f} ({middle:.3f})" for part, (low, middle) in parts.items()))
    print("one copy of the memory {:.3f} ({:.3f})".format(*results["memory copy"]))
    print(json.dumps(results))


if __name__ == "__main__":
    sys.exit(main())
