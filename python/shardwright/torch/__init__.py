"""Tensors of PyTorch over several processes: loaded straight from checkpoints, each rank its part, and taken from one layout to another.

    import shardwright.torch

    weights = shardwright.torch.load("llama/", [Shard(0)], device_mesh)
    weights = shardwright.torch.load("llama/", shardwright.torch.tensor_parallel(model.tp_plan), device_mesh)
    tensor = shardwright.torch.relayout(weights["embed.weight"], [Shard(1)])
"""
from .distribution import distribute_tensor, distribute_variable, relayout
from .loading import Placed, Placements, load
from .plans import tensor_parallel

__all__ = ["Placed", "Placements", "distribute_tensor", "distribute_variable", "load", "relayout", "tensor_parallel"]
