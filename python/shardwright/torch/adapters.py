"""Models that PEFT has wrapped: their adapters, and their bases with the adapters merged in."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..errors import InvalidArgumentError, UnsupportedError
from ..saving import CopySummary
from .conversions import whole
from .sources import InFile, InMemory, Onloaded, Source, hooks_of, nbytes, resolve, sources_of, unprefixed
from .sources import Files, is_loader
from .ties import same_bytes
from .writing import refuse_missing


def is_wrapped_model(model: Any) -> bool:
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(model, peft.PeftModel)


def base_of(model: torch.nn.Module) -> torch.nn.Module:
    return model.get_base_model() if is_wrapped_model(model) else model  # type: ignore[operator]


def refuse_wrongly_merged(model: torch.nn.Module) -> None:
    """PEFT merges an adapter that has no bytes into an offloaded layer without a word, and leaves the base's values there: in a plain dict, where the
    layers beside it have what reads the folder."""
    plain: list[tuple[str, Any]] = []
    loaders: dict[int, Any] = {}
    for path, module in model.named_modules():
        for hook in hooks_of(module):
            mapping, _ = unprefixed(hook.weights_map, "")
            if is_loader(mapping):
                loaders[id(mapping)] = mapping
            if type(hook.weights_map) is dict:
                plain.append((path, hook.weights_map))
    files = Files()
    wrong = []
    for path, weights in plain:
        for key, value in weights.items():
            name = f"{path}.{key}"
            known = next((loader for loader in loaders.values() if name in loader.index or name in loader.state_dict), None)
            if known is None or not isinstance(value, torch.Tensor) or not key.endswith("weight"):
                continue
            stored = resolve(known, name, files)
            if isinstance(stored, (InFile, InMemory)) and same_bytes(InMemory(value.detach().cpu().contiguous()), stored):
                wrong.append(name)
    if wrong:
        raise InvalidArgumentError(f"PEFT has merged adapters into {len(wrong)} offloaded weights, and they still have the base's values: the adapters had none",
                                   tensor=wrong[0], hint="merge on a model that is not offloaded; or give the adapters values, and save with merge=True instead")


def save_adapters(model: Any, directory: Any, *, max_shard_size: Any, memory: Any, threads: int, progress: Any) -> CopySummary:
    """What PEFT saves of a wrapped model, by PEFT: adapters are small. Those that are offloaded are read first."""
    state = model.state_dict(keep_vars=True)
    own = {name: value for name, value in state.items() if _is_adapters(name, model)}
    sources = sources_of(model, own, {})
    refuse_missing(sources)
    state = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in state.items()}
    state |= {name: whole(source) for name, source in sources.items() if not isinstance(source, InMemory)}
    os.makedirs(directory, exist_ok=True)
    model.save_pretrained(os.fspath(directory), state_dict=state)
    written = [os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names if name.startswith("adapter_")]
    total = sum(nbytes(source) for source in sources.values())
    return CopySummary("", os.fspath(directory), "safetensors", len(sources), len(written) // 2 or 1, total, total, 0, 0.0, 1.0,
                       [(os.path.relpath(path, directory), os.path.getsize(path)) for path in sorted(written)], [])


def _is_adapters(name: str, model: Any) -> bool:
    adapters = set(model.peft_config)
    prefix = getattr(model.base_model, "prefix", "lora_") or "lora_"
    parts = name.split(".")
    return any(part.startswith(prefix) for part in parts) or ("modules_to_save" in parts and bool(adapters & set(parts)))


# ---- merging

def merged_sources(model: Any) -> dict[str, Source]:
    """Of the base by its own names, the active adapters merged in. InvalidArgumentError for adapters without values."""
    base = base_of(model)
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper
    layers = {path: m for path, m in base.named_modules() if isinstance(m, BaseTunerLayer)}
    replaced = {path: m for path, m in base.named_modules() if isinstance(m, ModulesToSaveWrapper)}
    nested = next((path for path, m in layers.items() if type(m).__name__ == "ParamWrapper" or any(p.startswith(f"{path}.base_layer.") for p in layers)), None)
    if nested is not None:
        raise UnsupportedError("adapters of parameters that are no module's weight are not merged here", tensor=nested)
    state = {n: v for n, v in base.state_dict(keep_vars=True).items() if isinstance(v, torch.Tensor)}
    sources = sources_of(base, state, getattr(base, "all_tied_weights_keys", None) or {})
    out: dict[str, Source] = {}
    needed: dict[str, Source] = {}
    for name, source in sources.items():
        path = _owner(name, layers)
        wrapper = _owner(name, replaced)
        if path is not None:
            rest = name[len(path) + 1:]
            needed |= {name: source} if rest.startswith("base_layer.") or _is_active(rest, layers[path]) else {}
            if rest.startswith("base_layer."):
                out[f"{path}.{rest.removeprefix('base_layer.')}"] = _merged(layers[path], path, rest, sources)
        elif wrapper is not None:
            plain = _of_wrapper(name[len(wrapper) + 1:], replaced[wrapper])
            if plain is not None:
                out[f"{wrapper}.{plain}"] = needed[name] = source
        else:
            out[name] = needed[name] = source
    refuse_missing(needed)
    return out


def _owner(name: str, modules: Mapping[str, Any]) -> str | None:
    parts = name.split(".")
    return next((path for i in range(len(parts) - 1, 0, -1) if (path := ".".join(parts[:i])) in modules), None)


def _is_active(rest: str, layer: Any) -> bool:
    return bool(set(layer.active_adapters) & set(rest.split(".")))


def _of_wrapper(rest: str, wrapper: Any) -> str | None:
    """A tensor of a module that is trained whole: the active adapter's is the model's. None: another's."""
    active = next((a for a in wrapper.active_adapters if a in wrapper.modules_to_save), None)
    prefix = "original_module." if active is None else f"modules_to_save.{active}."
    return rest.removeprefix(prefix) if rest.startswith(prefix) else None


def _merged(layer: Any, path: str, rest: str, sources: Mapping[str, Source]) -> Source:
    source = sources[f"{path}.{rest}"]
    adapters = [a for a in layer.active_adapters if any(a in getattr(layer, n, {}) for n in layer.adapter_layer_names)]
    biased = any(getattr(layer, "lora_bias", {}).get(a) for a in adapters)
    touched = rest == "base_layer.weight" or biased or not any(n.startswith("lora_") for n in layer.adapter_layer_names)
    if not adapters or layer.merged or layer.disable_adapters or not touched or not isinstance(source, (InFile, InMemory, Onloaded)):
        return source
    return Onloaded(source.dtype, source.shape, _merge(layer, path, rest, sources))


def _merge(layer: Any, path: str, rest: str, sources: Mapping[str, Source]) -> Callable[[], torch.Tensor]:
    """PEFT's own merge, of a layer that has its tensors for that long."""
    def run() -> torch.Tensor:
        held: list[tuple[dict[str, Any], str, Any]] = []
        merged = list(layer.merged_adapters)
        try:
            for name, tensor in list(layer.named_parameters(recurse=True)):
                base = name.startswith("base_layer.")
                if not base and tensor.device.type != "meta":
                    continue
                owner, _, key = name.rpartition(".")
                slots = layer.get_submodule(owner)._parameters
                held.append((slots, key, slots[key]))
                value = whole(sources[f"{path}.{name}"])
                slots[key] = torch.nn.Parameter(value.clone() if isinstance(sources[f"{path}.{name}"], InMemory) else value, requires_grad=False)
            with torch.no_grad():
                layer.merge()
            owner, _, key = rest.rpartition(".")
            value = layer.get_submodule(owner)._parameters[key].detach()
            return value.to(getattr(sources[f"{path}.{rest}"], "dtype"))
        finally:
            for slots, key, parameter in held:
                slots[key] = parameter
            layer.merged_adapters[:] = merged
    return run
