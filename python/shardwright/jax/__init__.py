"""Arrays of JAX over many devices: loaded straight from checkpoints, saved, and taken from one layout to another; never whole anywhere.

    import shardwright.jax

    weights = shardwright.jax.load("llama/", NamedSharding(mesh, PartitionSpec("model")))
    weights = shardwright.jax.relayout(weights, NamedSharding(mesh, PartitionSpec("data")))
"""
from .distribution import distribute_tensor, distribute_variable, relayout
from .loading import Shardings, Wish, load
from .saving import save

__all__ = ["Shardings", "Wish", "distribute_tensor", "distribute_variable", "load", "relayout", "save"]
