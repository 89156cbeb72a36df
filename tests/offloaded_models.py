"""Tiny models of transformers, and the states of offloading that accelerate brings them into."""
import pathlib

import torch
import transformers
from accelerate import cpu_offload, disk_offload, dispatch_model

transformers.logging.set_verbosity_error()
IDS = torch.arange(8)[None] % 50


def _bfloat16(model):
    """As loading gives it: buffers that are not saved keep their type."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model.eval()


def llama(tied: bool = False, seed: int = 0, **more):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
             "max_position_embeddings": 32, "tie_word_embeddings": tied, "dtype": "bfloat16"}
    config = transformers.LlamaConfig(**{**sizes, **more})
    return _bfloat16(transformers.LlamaForCausalLM(config))


def mixtral():
    torch.manual_seed(1)
    config = transformers.MixtralConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                        num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=32)
    return _bfloat16(transformers.MixtralForCausalLM(config))


def from_repo(repo, **more):
    return transformers.AutoModelForCausalLM.from_pretrained(repo, dtype="auto", **more).eval()


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits.clone()


MIXED = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.layers.2": "disk", "model.norm": "cpu",
         "model.rotary_emb": "cpu", "lm_head": "cpu"}


def _sequential(model, folder):
    from accelerate.hooks import ModelHook, add_hook_to_module
    model = disk_offload(model, folder)
    for layer in model.model.layers:
        for module in layer.modules():
            if hasattr(module, "_hf_hook"):
                for _ in range(2):  # a sequence in a sequence
                    add_hook_to_module(module, ModelHook(), append=True)
    return model


def _two_folders(model, folder):
    for i, layer in enumerate(model.model.layers):
        dispatch_model(layer, {"self_attn": "disk", "mlp": "disk", "input_layernorm": "cpu", "post_attention_layernorm": "cpu"},
                       offload_dir=folder / str(i), main_device="cpu")
    return model


STATES = {
    "memory": lambda repo, folder: from_repo(repo),
    "repo": lambda repo, folder: from_repo(repo, device_map={"": "disk"}),
    "mixed": lambda repo, folder: from_repo(repo, device_map=MIXED),
    "dispatched": lambda repo, folder: dispatch_model(from_repo(repo), {"model": "disk", "lm_head": "disk"}, offload_dir=folder),
    "partly dispatched": lambda repo, folder: dispatch_model(from_repo(repo), MIXED, offload_dir=folder),
    "disk_offload": lambda repo, folder: disk_offload(from_repo(repo), folder),
    "cpu_offload": lambda repo, folder: cpu_offload(from_repo(repo)),
    "blocks preloaded": lambda repo, folder: disk_offload(from_repo(repo), folder, preload_module_classes=["LlamaMLP"]),
    "sequential hooks": lambda repo, folder: _sequential(from_repo(repo), folder),
    "two folders": lambda repo, folder: _two_folders(from_repo(repo), folder),
}


def contents(directory) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(pathlib.Path(directory).rglob("*")) if path.is_file()}


def reference(repo, directory, size, **more) -> dict[str, bytes]:
    """What transformers writes for the model in memory."""
    from_repo(repo).save_pretrained(directory, max_shard_size=size, **more)
    return contents(directory)
