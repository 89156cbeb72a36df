"""Whether what is held by reference outlives a step that donates it."""
from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np


@functools.cache
def views_survive_donation() -> bool:
    """True when a NumPy view of an array keeps its values though the array is donated: JAX on the CPU copies then. Tried once; it is no promise of
    JAX's."""
    array = jax.jit(lambda x: x + 1)(jnp.zeros(256, jnp.float32))
    view = np.asarray(array)
    result = np.asarray(jax.jit(lambda x: x * 2 + 5, donate_argnums=0)(array))
    return bool((view == 1).all()) and not np.shares_memory(view, result)
