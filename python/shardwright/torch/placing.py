"""A model filled from a checkpoint, part by part where a device map says: in memory, on an accelerator, or left on disk."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..checkpoint import open as open_checkpoint
from ..errors import InvalidArgumentError, UnsupportedError
from ..memory import DEFAULT_MEMORY, TURN_BYTES, in_turns
from ..progress import Progress
from .modules import compare, fill, tensors_of


def load_into(model: torch.nn.Module, path: str | os.PathLike[str] | Checkpoint, *, device_map: str | Mapping[str, Any] | None = None, strict: bool = True,
              memory: int | str = DEFAULT_MEMORY, threads: int = 0, progress: Progress = None) -> tuple[list[str], list[str]]:
    """Fills a model from a checkpoint of any format. Returns the names that the checkpoint lacks, and those that the model lacks.

    device_map: for modules or tensors by name, "" for the rest, the longest name that fits: a device, or "disk"; or one for all. None: each
        tensor stays on its device, and those on the meta device come to the CPU. A map with "disk", and a CPU beside an accelerator, is for
        accelerate, whose hooks bring the weights in when they are needed: what is on disk is read from the checkpoint itself, safetensors, and
        not copied. Buffers are in memory also where their module is on disk.
    strict: missing and unexpected names are errors; shapes that differ always are. All is checked first, and the model is untouched then.
    memory: bytes that may be used beside the model.
    """
    if not isinstance(path, Checkpoint):
        with open_checkpoint(os.path.realpath(path)) as checkpoint:
            return load_into(model, checkpoint, device_map=device_map, strict=strict, memory=memory, threads=threads, progress=progress)
    state = tensors_of(model)
    missing, unexpected = compare(path, state, strict)
    places = _places(state, device_map)
    index = _index_of(path, state, places)
    several = not isinstance(device_map, str) and len(set(map(str, (device_map or {}).values()))) > 1
    by_modules = _by_modules(model, device_map) if several or "disk" in places.values() else None
    filled = {name: "cpu" if place == "disk" else place for name, place in places.items()
              if name in path and (place != "disk" or not isinstance(state[name], torch.nn.Parameter))}
    _fill(model, path, filled, state, memory, threads, progress)
    if by_modules is not None:
        _dispatch(model, by_modules, index)
    return missing, unexpected


def _places(tensors: Mapping[str, torch.Tensor], device_map: str | Mapping[str, Any] | None) -> dict[str, str]:
    """Tied tensors of which one is in memory all are."""
    places = {name: _place(name, tensor, device_map) for name, tensor in tensors.items()}
    in_memory = {id(tensors[name]): place for name, place in places.items() if place != "disk"}
    return {name: in_memory.get(id(tensors[name]), place) for name, place in places.items()}


def _place(name: str, tensor: torch.Tensor, device_map: str | Mapping[str, Any] | None) -> str:
    if device_map is None:
        return "cpu" if tensor.device.type == "meta" else str(tensor.device)
    if isinstance(device_map, str):
        return device_map
    fitting = [key for key in device_map if key == "" or name == key or name.startswith(key + ".")]
    if not fitting:
        raise InvalidArgumentError("the device map has no place for it", tensor=name, hint='"" is for what nothing else fits')
    place = device_map[max(fitting, key=len)]
    return f"cuda:{place}" if isinstance(place, int) else str(place)


def _by_modules(model: torch.nn.Module, device_map: str | Mapping[str, Any] | None) -> dict[str, str]:
    """The same by modules that do not contain one another: hooks of a module are those of all within it."""
    tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    places = _places(tensors, device_map)
    within: dict[str, set[str]] = {}
    for name, place in places.items():
        parts = name.split(".")
        for i in range(len(parts) + 1):
            within.setdefault(".".join(parts[:i]), set()).add(place)
    out: dict[str, str] = {}
    for path, found in within.items():  # a module before what is in it
        parent = path.rpartition(".")[0]
        if len(found) == 1 and (path == "" or len(within[parent]) > 1):
            out[path] = next(iter(found))
    on_disk = next((name for name in places if out.get(name) == "disk"), None)
    if on_disk is not None:
        raise UnsupportedError("a tensor stays on disk with its module only, of which other parts are elsewhere", tensor=on_disk,
                               hint=f"name its module in the device map, or give '{on_disk}' another place")
    return out


def _index_of(checkpoint: Checkpoint, state: Mapping[str, torch.Tensor], places: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Pointers for what stays on disk, as accelerate has them."""
    index: dict[str, dict[str, str]] = {}
    for name, place in places.items():
        if place != "disk" or not isinstance(state[name], torch.nn.Parameter):
            continue
        known = name if name in checkpoint else next((other for other, tensor in state.items() if tensor is state[name] and other in checkpoint), None)
        if known is None:
            continue
        if checkpoint.format != "safetensors":
            raise UnsupportedError("only safetensors files can be pointed into", tensor=name, path=checkpoint.path, found=checkpoint.format,
                                   hint="copy the checkpoint to safetensors first: `shardwright copy`")
        kept = checkpoint.ties.get(known, known)
        index[name] = {"safetensors_file": os.path.realpath(checkpoint[kept].files[0]), "weight_name": kept,
                       "dtype": str(state[name].dtype).removeprefix("torch.")}
    return index


def _fill(model: torch.nn.Module, checkpoint: Checkpoint, places: Mapping[str, str], state: Mapping[str, torch.Tensor], memory: Any, threads: int,
          progress: Progress) -> None:
    fresh: dict[int, Any] = {}  # by the old tensor: ties stay ties
    in_place = {name: state[name] for name, place in places.items() if str(state[name].device) == place == "cpu"}
    fill(checkpoint, in_place, memory, threads, progress)
    done = {id(tensor) for tensor in in_place.values()}
    others: dict[int, str] = {}
    for name in places:
        if id(state[name]) not in done:
            others.setdefault(id(state[name]), name)
    for names in in_turns(others.values(), lambda name: state[name].nbytes, TURN_BYTES):
        turn = {name: torch.empty(state[name].shape, dtype=state[name].dtype) for name in names}
        fill(checkpoint, turn, memory, threads, progress)
        for name, tensor in turn.items():
            old, value = state[name], tensor.to(places[name])
            fresh[id(old)] = torch.nn.Parameter(value, requires_grad=old.requires_grad) if isinstance(old, torch.nn.Parameter) else value
    for module in model.modules():
        for slots in (module._parameters, module._buffers):
            for key, old in slots.items():
                if old is not None and id(old) in fresh:
                    slots[key] = fresh[id(old)]


def _dispatch(model: torch.nn.Module, device_map: Mapping[str, Any], index: dict[str, dict[str, str]]) -> None:
    import accelerate
    on_disk = {id(p) for n, p in model.state_dict(keep_vars=True).items() if n in index}
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():  # nothing is read for them now
        for key, old in module._parameters.items():
            if old is not None and id(old) in on_disk:
                module._parameters[key] = made.setdefault(id(old), torch.nn.Parameter(old.detach().to("meta"), requires_grad=old.requires_grad))
    accelerate.dispatch_model(model, dict(device_map), offload_index=index)
