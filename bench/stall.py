"""What saving a training state costs the training: the call, and the steps after it; and how long it takes until all is on the disk and back.

Usage: python bench/stall.py [--mb 1000] [--rounds 5] [--dir DIR] [--framework jax|torch]... [--figure FILE]

On the CPU. JAX arrays, donated by every step or not: shardwright by copy, by reference and without a background, beside Orbax's manager; PyTorch
tensors that every step writes to: shardwright beside torch.distributed.checkpoint's async_save. Rivals take turns. Prints minima (medians), one
memory copy into memory that has been touched beside them, and one JSON object at the end; the figure is of JAX's steps, donated.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

import figure
import numpy as np

LAYERS = 8
STEPS_BEFORE, STEPS_AFTER = 3, 5


def memory_copy(nbytes):
    source, target = np.ones(nbytes, "u1"), np.ones(nbytes, "u1")
    begun = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - begun


class Ours:
    def __init__(self, root, **options):
        import shardwright
        self.manager = shardwright.CheckpointManager(root, keep_last=2, **options)
        self.save, self.wait = self.manager.save, self.manager.wait

    def restore(self, step, state):
        return self.manager.restore(step, target=state)


class Orbax:
    def __init__(self, root):
        import orbax.checkpoint as ocp
        self.arguments = ocp.args
        self.manager = ocp.CheckpointManager(root, options=ocp.CheckpointManagerOptions(max_to_keep=2))
        self.wait = self.manager.wait_until_finished

    def save(self, step, state):
        self.manager.save(step, args=self.arguments.StandardSave(state))

    def restore(self, step, state):
        return self.manager.restore(step, args=self.arguments.StandardRestore(state))


class Torch:
    def __init__(self, root):
        import torch.distributed.checkpoint as dcp
        self.root, self.dcp, self.future = root, dcp, None

    def save(self, step, state):
        self.future = self.dcp.async_save(state, checkpoint_id=f"{self.root}/{step}")
        shutil.rmtree(f"{self.root}/{step - 2}", ignore_errors=True)

    def wait(self):
        self.future.result()

    def restore(self, step, state):
        self.dcp.load(state, checkpoint_id=f"{self.root}/{step}")
        return state


class OnJax:
    """Steps that make new arrays; donated: in the memory of the old ones."""

    def __init__(self, mb, donated):
        import jax
        self.jax, self.size = jax, mb * 1000 * 1000 // 4 // LAYERS
        self.step = jax.jit(lambda tree: jax.tree.map(lambda x: x * 1.0001, tree), donate_argnums=(0,) if donated else ())

    def state(self):
        return {f"layer{i}": self.jax.random.uniform(self.jax.random.key(i), (self.size,)) for i in range(LAYERS)}

    def train(self, state):
        return self.jax.block_until_ready(self.step(state))

    def finish(self, state):
        self.jax.block_until_ready(state)


class OnTorch:
    """Steps that write into the tensors there are."""

    def __init__(self, mb):
        import torch
        self.torch, self.size = torch, mb * 1000 * 1000 // 4 // LAYERS

    def state(self):
        return {f"layer{i}": self.torch.rand(self.size) for i in range(LAYERS)}

    def train(self, state):
        for tensor in state.values():
            tensor.mul_(1.0001)
        return state

    def finish(self, state):
        pass


def timed(call, *arguments):
    begun = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - begun


def measure(rival, step, world):
    """Seconds of the call, of the steps after it beyond what a step takes, until the step is on disk, and until it is back in other arrays."""
    state, usual, later = world.state(), [], []
    world.finish(state)
    for _ in range(STEPS_BEFORE):
        state, seconds = timed(world.train, state)
        usual.append(seconds)
    begun = time.perf_counter()
    _, call = timed(rival.save, step, state)
    for _ in range(STEPS_AFTER):
        state, seconds = timed(world.train, state)
        later.append(seconds)
    rival.wait()
    whole = time.perf_counter() - begun
    os.sync()  # a peer may leave that to the system
    synced = time.perf_counter() - begun
    other = world.state()
    world.finish(other)
    restored, back = timed(rival.restore, step, other)
    world.finish(restored)
    return {"call": call, "after": max(sum(later) - STEPS_AFTER * min(usual), 0.0), "whole": whole, "synced": synced, "restore": back,
            "steps": [*usual, later[0] + call, *later[1:]]}


def rivals_of(framework):
    if framework == "torch":
        return {"shardwright": Ours, "shardwright, blocking": lambda p: Ours(p, background=False), "torch DCP async_save": Torch}
    return {"shardwright": lambda p: Ours(p, hold="copy"), "shardwright, by reference": lambda p: Ours(p, hold="reference"),
            "shardwright, blocking": lambda p: Ours(p, background=False), "Orbax": Orbax}


def run(case, world, rivals, rounds, root):
    """Per rival what measure() gives, of every round but the first: that one compiles, and takes the staging memory."""
    made = {name: make(os.path.join(root, f"{case} {name}")) for name, make in rivals.items()}
    kept = {name: [] for name in made}
    for number in range(rounds + 1):
        for name in list(made)[::-1 if number % 2 else 1]:
            seconds = measure(made[name], number, world)
            if number:
                kept[name].append(seconds)
    return kept


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mb", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--dir", default=None)
    arguments.add_argument("--framework", action="append", choices=["jax", "torch"])
    arguments.add_argument("--figure", default=None)
    given = arguments.parse_args()
    root = tempfile.mkdtemp(dir=given.dir)
    frameworks, results = given.framework or ["jax", "torch"], {}
    try:
        if "jax" in frameworks:
            for case, donated in (("JAX", False), ("JAX, donated", True)):
                results[case] = run(case, OnJax(given.mb, donated), rivals_of("jax"), given.rounds, root)
        if "torch" in frameworks:
            import torch
            torch.distributed.init_process_group("gloo", init_method=f"file://{root}/meet", rank=0, world_size=1)
            results["PyTorch"] = run("PyTorch", OnTorch(given.mb), rivals_of("torch"), given.rounds, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    copies = [memory_copy(given.mb * 1000 * 1000) for _ in range(given.rounds)]
    for case, rivals in results.items():
        for name, rows in rivals.items():
            parts = {part: [row[part] for row in rows] for part in rows[0] if part != "steps"}
            print(f"{case:14} {name:26} " + "  ".join(f"{part} {min(v):.3f} ({statistics.median(v):.3f})" for part, v in parts.items()))
    print(f"one copy of the memory {min(copies):.3f} ({statistics.median(copies):.3f})")
    if given.figure:
        lines = {name: [(i, statistics.median(row["steps"][i] for row in rows)) for i in range(STEPS_BEFORE + STEPS_AFTER)]
                 for name, rows in results["JAX, donated"].items()}
        figure.draw(given.figure, lines, "seconds of a step, with the call of save()", f"steps; step {STEPS_BEFORE} begins with a save", "{:.2f} s")
    print(json.dumps({**results, "memory copy": copies}))


if __name__ == "__main__":
    sys.exit(main())
