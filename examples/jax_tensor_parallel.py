"""A feed-forward block over eight devices, its weights read straight to where they belong: each device gets its columns and rows, none the whole.

    python examples/jax_tensor_parallel.py [FOLDER]

Runs on the CPU, which plays eight devices.
"""
import os
import sys
import tempfile

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import shardwright
import shardwright.jax

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
path = os.path.join(folder, "block.safetensors")

# A checkpoint, as it comes from anywhere.
rng = np.random.default_rng(0)
shardwright.save(path, {
    "up.weight": rng.standard_normal((256, 1024), dtype="float32") / 16, "up.bias": rng.standard_normal(1024, dtype="float32"),
    "down.weight": rng.standard_normal((1024, 256), dtype="float32") / 32, "down.bias": rng.standard_normal(256, dtype="float32"),
}, overwrite=True)

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
layouts = {"up.weight": P(None, "model"), "up.bias": P("model"), "down.weight": P("model", None), "down.bias": P()}
with shardwright.open(path) as checkpoint:
    before = checkpoint.bytes_read
    weights = shardwright.jax.load(checkpoint, {name: NamedSharding(mesh, spec) for name, spec in layouts.items()})
    print(f"read {checkpoint.bytes_read - before} bytes of {checkpoint.nbytes}")
for name, array in weights.items():
    print(f"{name:12} {str(array.shape):12} {str(layouts[name]):28} {array.addressable_shards[0].data.shape} on each device")


@jax.jit
def block(weights, x):
    hidden = jax.nn.relu(x @ weights["up.weight"] + weights["up.bias"])
    return hidden @ weights["down.weight"] + weights["down.bias"]


x = jax.device_put(rng.standard_normal((8, 256), dtype="float32"), NamedSharding(mesh, P("data")))
y = block(weights, x)
print(f"output {y.shape}, batch over '{y.sharding.spec[0]}'")

# The same on one device, from whole arrays.
whole = shardwright.open(path).load()
difference = float(jnp.max(jnp.abs(np.asarray(y) - block(whole, np.asarray(x)))))
assert difference < 1e-4, difference
print(f"largest difference to one device: {difference:.1e}")
