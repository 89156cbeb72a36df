"""States of training, as flax and Keras keep them: saved by Orbax and read here, saved here and restored by Orbax into the state."""
import os
import subprocess
import sys

import pytest

pytest.importorskip("orbax.checkpoint")

COMMON = """
import os, sys, pathlib, warnings
import numpy as np, jax, jax.numpy as jnp
import orbax.checkpoint as ocp
import shardwright as sw, shardwright.jax as sj
at = pathlib.Path(os.environ["AT"])

def flat(tree):
    return {jax.tree_util.keystr(keys, simple=True, separator="."): np.asarray(leaf) for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}

def same(a, b):
    assert sorted(a) == sorted(b), sorted(set(a) ^ set(b))
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes(), name

def abstract(tree):
    return jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)

def orbax_save(path, tree):
    with ocp.StandardCheckpointer() as saver:
        saver.save(path, tree)

def both_ways(state):
    "Orbax to us; us to Orbax, into the state's own type."
    orbax_save(at / "theirs", state)
    same(dict(sw.open(at / "theirs").load()), flat(state))
    for name, options in {"raw": {}, "zstd": {"compression": "zstd"}, "v1": {"api": "v1"}}.items():
        sj.save(at / name, state, format="orbax", options=options)
        same(dict(sw.open(at / name).load()), flat(state))
        if name == "v1":
            from orbax.checkpoint import v1
            restored = v1.load_pytree(at / name, abstract(state))
        else:
            restored = ocp.StandardCheckpointer().restore(at / name, abstract(state))
        assert jax.tree.structure(restored) == jax.tree.structure(state)
        same(flat(restored), flat(state))
    plain = ocp.StandardCheckpointer().restore(at / "raw"), ocp.StandardCheckpointer().restore(at / "theirs")
    assert jax.tree.structure(plain[0]) == jax.tree.structure(plain[1])
    same(flat(plain[0]), flat(plain[1]))
    # By way of safetensors, and back.
    sw.copy(at / "theirs", at / "hub.safetensors")
    sw.copy(at / "hub.safetensors", at / "back", format="orbax")
    same(flat(ocp.StandardCheckpointer().restore(at / "back", )), flat(state)) if not lists else None
"""

FLAX = """
lists = True
from flax.training import train_state
import flax.linen as nn, optax
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(8)(x)))
model = Model()
params = model.init(jax.random.key(0), jnp.ones((1, 4)))["params"]
state = train_state.TrainState.create(apply_fn=model.apply, params={**params, "more": [jnp.ones(2), (jnp.zeros(3, jnp.bfloat16), {}, None)]},
                                      tx=optax.chain(optax.clip(1.0), optax.adamw(1e-3)))
both_ways(state.replace(step=jnp.asarray(7)))
"""

NNX = """
lists = False
from flax import nnx
import optax
class Model(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
model = Model(nnx.Rngs(0))
pure = nnx.to_pure_dict(nnx.state(model, nnx.Param))
both_ways(pure)
# With the state of its generators, typed keys.
keyed = nnx.to_pure_dict(nnx.state(model))
sj.save(at / "keyed", keyed, format="orbax")
restored = ocp.StandardCheckpointer().restore(at / "keyed", abstract(keyed))
for mine, theirs in zip(jax.tree.leaves(keyed), jax.tree.leaves(restored)):
    if jax.dtypes.issubdtype(mine.dtype, jax.dtypes.prng_key):
        assert theirs.dtype == mine.dtype
        mine, theirs = jax.random.key_data(mine), jax.random.key_data(theirs)
    assert np.array_equal(mine, theirs)
"""

KERAS = """
lists = False
import keras
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(2)])
model.compile("adam", "mse")
data = np.ones((8, 4), "f4"), np.ones((8, 2), "f4")
model.fit(*data, verbose=0)
both_ways(model.get_state_tree())
# Restored into a fresh model.
twin = keras.models.clone_model(model)
twin.compile("adam", "mse")
twin.fit(*data, verbose=0)
twin.set_state_tree(ocp.StandardCheckpointer().restore(at / "raw"))
assert np.array_equal(twin.predict(data[0], verbose=0), model.predict(data[0], verbose=0))
"""


@pytest.mark.parametrize("code", [FLAX, NNX, KERAS], ids=["flax", "nnx", "keras"])
def test_states(tmp_path, code):
    if code is not KERAS:
        pytest.importorskip("flax")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", COMMON + code], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "AT": str(tmp_path), "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"})
    assert done.returncode == 0, done.stderr[-3000:]
