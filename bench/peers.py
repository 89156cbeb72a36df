"""One peer at one job, in a process of its own; prints {"seconds", "peak_rss_bytes", ...}. Imports are not timed.

Usage: python bench/peers.py JOB ARGS...
"""

import glob
import json
import os
import resource
import sys
import time


def shards(directory):
    return sorted(glob.glob(os.path.join(directory, "*.safetensors")))


def report(seconds, **more):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_rss_bytes": peak, **more}))


def hub_reshard(source, target, size):
    """The usual way to another shard size: load everything, save it again."""
    from huggingface_hub import save_torch_state_dict
    from safetensors.torch import load_file

    os.makedirs(target)
    start = time.perf_counter()
    tensors = {}
    for path in shards(source):
        tensors |= load_file(path)
    save_torch_state_dict(tensors, target, max_shard_size=size)
    os.sync()
    report(time.perf_counter() - start)


def safetensors_load(source):
    """load_file alone maps the file and reads nothing: only with clone() are the values in memory of one's own."""
    from safetensors.torch import load_file
    import torch

    torch.empty(1).clone()
    start = time.perf_counter()
    tensors = {}
    for path in shards(source):
        tensors |= {name: tensor.clone() for name, tensor in load_file(path).items()}
    seconds = time.perf_counter() - start
    total = sum(int(t.view(torch.uint8).sum(dtype=torch.int64)) for t in tensors.values())
    report(seconds, sum=total)


def make(target, shard_size):
    """A bf16 model of 1.1 billion parameters: the shapes of TinyLlama, random bits that are all finite."""
    from huggingface_hub import save_torch_state_dict
    import torch

    layers, hidden, kv, wide, vocabulary = 22, 2048, 256, 5632, 32000
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes |= {
            p + "self_attn.q_proj.weight": (hidden, hidden),
            p + "self_attn.k_proj.weight": (kv, hidden),
            p + "self_attn.v_proj.weight": (kv, hidden),
            p + "self_attn.o_proj.weight": (hidden, hidden),
            p + "mlp.gate_proj.weight": (wide, hidden),
            p + "mlp.up_proj.weight": (wide, hidden),
            p + "mlp.down_proj.weight": (hidden, wide),
            p + "input_layernorm.weight": (hidden,),
            p + "post_attention_layernorm.weight": (hidden,),
        }
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=generator, dtype=torch.bfloat16) for name, shape in shapes.items()}
    os.makedirs(target)
    save_torch_state_dict(tensors, target, max_shard_size=shard_size)


if __name__ == "__main__":
    {"hub_reshard": hub_reshard, "safetensors_load": safetensors_load, "make": make}[sys.argv[1]](*sys.argv[2:])
