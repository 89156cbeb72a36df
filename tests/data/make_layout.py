#!/usr/bin/env python3
"""Writes layout/shardings.json: layouts as JAX and PyTorch write them, with the box of every device as they compute it.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 tests/data/make_layout.py
"""
import json
import math
import os
import pathlib
import random

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

MESHES = [{"a": 8}, {"a": 2, "b": 4}, {"a": 4, "b": 2}, {"x": 2, "y": 2, "z": 2}, {"d": 1, "m": 8}, {"a": 2, "one": 1, "b": 4},
          {"a": 4, "b": 1, "c": 2, "d": 1}]


class Sizes:
    """As much of a torch DeviceMesh as the conversion asks for; a real one needs a process group."""

    def __init__(self, shape):
        self.shape = shape

    def size(self, i):
        return self.shape[i]


def random_spec(rng, axes, rank):
    """Axes dealt out to dimensions in any order, some to none."""
    spec = [[] for _ in range(rank)]
    for axis in rng.sample(axes, len(axes)):
        if rank and rng.random() < 0.7:
            rng.choice(spec).append(axis)
    return spec


def placements_of(mesh, spec):
    names = list(mesh)
    placements = [Replicate()] * len(names)
    order = []
    for dim, axes in enumerate(spec):
        for axis in axes:
            placements[names.index(axis)] = Shard(dim)
        if axes:
            order.append(ShardOrderEntry(dim, tuple(names.index(axis) for axis in axes)))
    return DTensorSpec._convert_shard_order_to_StridedShard(tuple(order), tuple(placements), Sizes(list(mesh.values())))


def torch_boxes(mesh, placements, shape):
    boxes = []
    for position in range(math.prod(mesh.values())):
        at = [int(i) for i in np.unravel_index(position, tuple(mesh.values()))]
        extent, start = _compute_local_shape_and_global_offset(shape, tuple(mesh.values()), at, placements)
        boxes.append([list(start), list(extent)])
    return boxes


def jax_case(rng):
    mesh = rng.choice(MESHES)
    rank = rng.randrange(4)
    spec = random_spec(rng, list(mesh), rank)
    shape = [math.prod(mesh[axis] for axis in axes) * rng.randrange(1, 4) for axes in spec]
    order = rng.sample(range(8), 8) if rng.random() < 0.3 else list(range(8))
    entries = [None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in spec]
    devices = np.array(jax.devices())[order].reshape(tuple(mesh.values()))
    sharding = NamedSharding(Mesh(devices, tuple(mesh)), PartitionSpec(*entries))
    index = sharding.devices_indices_map(tuple(shape))
    boxes = []
    for device in devices.flat:
        ranges = [part.indices(size) for part, size in zip(index[device], shape)]
        boxes.append([[begin for begin, _, _ in ranges], [end - begin for begin, end, _ in ranges]])
    lowered = jax.jit(lambda x: x, in_shardings=sharding).lower(jax.ShapeDtypeStruct(tuple(shape), jnp.float32)).as_text()
    shardy = lowered[lowered.index("sdy.sharding = ") + len("sdy.sharding = "):].split(">", 1)[0] + ">"
    placements = placements_of(mesh, spec)
    assert torch_boxes(mesh, placements, tuple(shape)) == boxes
    return {"axes": list(mesh), "mesh": list(mesh.values()), "devices": order, "spec": entries, "shape": shape,
            "gspmd": str(sharding._to_xla_hlo_sharding(rank)), "shardy": shardy, "torch": repr(placements), "boxes": boxes}


def uneven_case(rng):
    """As torch chunks; each dimension's axes in the mesh's order, for other orders torch's shards are no boxes."""
    mesh = rng.choice(MESHES)
    rank = rng.randrange(1, 4)
    spec = [sorted(axes, key=list(mesh).index) for axes in random_spec(rng, list(mesh), rank)]
    shape = [rng.randrange(12) for _ in range(rank)]
    placements = placements_of(mesh, spec)
    return {"axes": list(mesh), "mesh": list(mesh.values()), "shape": shape, "torch": repr(placements),
            "boxes": torch_boxes(mesh, placements, tuple(shape))}


def main():
    rng = random.Random(5)
    folder = pathlib.Path(__file__).resolve().parent / "layout"
    folder.mkdir(exist_ok=True)
    cases = {"even": [jax_case(rng) for _ in range(150)], "uneven": [uneven_case(rng) for _ in range(80)]}
    lines = [f'"{kind}": [\n' + ",\n".join(json.dumps(case, separators=(",", ":")) for case in rows) + "\n]" for kind, rows in cases.items()]
    (folder / "shardings.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
