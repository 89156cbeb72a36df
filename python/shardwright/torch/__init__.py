"""Models of PyTorch, saved in bounded memory wherever their weights lie; and tensors over several processes: loaded straight from checkpoints, each
rank its part, and taken from one layout to another.

    import shardwright.torch

    shardwright.torch.save_pretrained(model, "llama-2gb/", max_shard_size="2GB")
    shardwright.torch.load_into(model, "llama/", device_map={"embed": "cpu", "": "disk"})

    weights = shardwright.torch.load("llama/", [Shard(0)], device_mesh)
    weights = shardwright.torch.load("llama/", shardwright.torch.tensor_parallel(model.tp_plan), device_mesh)
    tensor = shardwright.torch.relayout(weights["embed.weight"], [Shard(1)])
"""
from .distribution import distribute_tensor, distribute_variable, relayout
from .loading import Placed, Placements, load
from .modules import load_model, load_state_dict, save_model, save_state_dict
from .placing import load_into
from .plans import tensor_parallel
from .pretrained import save_pretrained

__all__ = ["Placed", "Placements", "distribute_tensor", "distribute_variable", "load", "load_into", "load_model", "load_state_dict", "relayout", "save_model",
           "save_pretrained", "save_state_dict", "tensor_parallel"]
