"""Tensors of PyTorch over several processes: from one layout to another.

    import shardwright.torch

    tensor = shardwright.torch.relayout(dtensor, [Shard(1)])
"""
from .distribution import distribute_tensor, distribute_variable, relayout

__all__ = ["distribute_tensor", "distribute_variable", "relayout"]
