"""Arrays of JAX: from one layout to another.

    import shardwright.jax

    array = shardwright.jax.relayout(array, NamedSharding(mesh, PartitionSpec("model")))
"""
from .distribution import distribute_tensor, distribute_variable, relayout
from .saving import save

__all__ = ["distribute_tensor", "distribute_variable", "relayout", "save"]
