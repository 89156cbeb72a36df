"""Plain modules and state dicts: saved by the rules of safetensors for tied tensors, and loaded back."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..checkpoint import open as open_checkpoint
from ..errors import InvalidArgumentError, UnsupportedError
from ..memory import DEFAULT_MEMORY, size
from ..progress import Progress
from ..saving import CopySummary
from .sources import InMemory, Source, sources_of
from .ties import by_rule_of_safetensors, groups_of
from .writing import refuse_missing, warn_of_memory, write_sources


def save_model(model: torch.nn.Module, path: str | os.PathLike[str], *, max_shard_size: int | str | None = None, metadata: Mapping[str, str] | None = None,
               memory: int | str = DEFAULT_MEMORY, threads: int = 0, progress: Progress = None) -> CopySummary:
    """Saves a module's parameters and persistent buffers, from where they are (see save_pretrained()).

    path: a file, "x.safetensors", or a directory for shards and their index. metadata: text to text.
    Tensors that share memory are saved once, as safetensors' save_model() does: under the alphabetically first name that covers its storage; the
    metadata says which names that stands for. What is not contiguous is packed. A file or set that is there is replaced, all or nothing.

    Raises InvalidArgumentError when none of the names that share memory covers it whole, and for tensors that have no data anywhere.
    """
    return _save(_sources_of_model(model), path, max_shard_size, metadata, memory, threads, progress)


def save_state_dict(state_dict: Mapping[str, torch.Tensor], path: str | os.PathLike[str], *, max_shard_size: int | str | None = None,
                    shared_tensors_to_discard: Iterable[str] = (), metadata: Mapping[str, str] | None = None, memory: int | str = DEFAULT_MEMORY,
                    threads: int = 0, progress: Progress = None) -> CopySummary:
    """The same of tensors by name, which are neither changed nor copied. shared_tensors_to_discard: names that are left out where another one
    of the same tensor can stay."""
    sources: dict[str, Source] = {}
    for name, value in state_dict.items():
        if not isinstance(value, torch.Tensor):
            raise InvalidArgumentError("a state dict is of tensors", tensor=name, found=type(value).__name__)
        if value.device.type == "meta":
            raise InvalidArgumentError("it is on the meta device: it has no data", tensor=name, hint="save_model() finds the data of offloaded models")
        sources[name] = InMemory(value)
    return _save(sources, path, max_shard_size, metadata, memory, threads, progress, shared_tensors_to_discard)


def load_state_dict(path: str | os.PathLike[str], *, device: Any = "cpu", memory: int | str = DEFAULT_MEMORY, threads: int = 0,
                    progress: Progress = None) -> dict[str, torch.Tensor]:
    """Tensors by name, of a checkpoint of any format; names that are noted as tied share one tensor."""
    with open_checkpoint(path) as checkpoint:
        _refuse_foreign_types(checkpoint, checkpoint)
        held: dict[int, torch.Tensor] = {}
        for name in checkpoint:
            tensor = checkpoint[name]
            held.setdefault(checkpoint._core.same_as(tensor._id), torch.empty(tensor.shape, dtype=torch_type(tensor)))
        out = {name: held[checkpoint._core.same_as(checkpoint[name]._id)] for name in checkpoint}
        fill(checkpoint, {name: out[name] for name in checkpoint if checkpoint._core.same_as(checkpoint[name]._id) == checkpoint[name]._id}, memory, threads,
             progress)
    if str(device) == "cpu":
        return out
    moved = {id(tensor): tensor.to(device) for tensor in held.values()}
    return {name: moved[id(tensor)] for name, tensor in out.items()}


def load_model(model: torch.nn.Module, path: str | os.PathLike[str], *, strict: bool = True, memory: int | str = DEFAULT_MEMORY, threads: int = 0,
               progress: Progress = None) -> tuple[list[str], list[str]]:
    """Fills a module in place, from a checkpoint of any format. Returns the names that the checkpoint lacks, and those that the module lacks.

    Of names that share memory in the module one is enough. Floating types are converted to the module's.
    All is checked first: with strict, missing and unexpected names, and in any case shapes that differ, are one InvalidArgumentError that names
    them all, and the module is untouched then. Tensors that are offloaded, or on another device than the CPU, are for load_into().
    """
    with open_checkpoint(path) as checkpoint:
        state = tensors_of(model)
        missing, unexpected = compare(checkpoint, state, strict)
        offloaded = [name for name, tensor in state.items() if tensor.device.type != "cpu"]
        if offloaded:
            raise UnsupportedError(f"{len(offloaded)} tensors of the module are not in the host's memory", tensor=offloaded[0],
                                   hint="shardwright.torch.load_into() fills them")
        fill(checkpoint, {name: state[name] for name in checkpoint if name in state}, memory, threads, progress)
    return missing, unexpected


def _sources_of_model(model: torch.nn.Module) -> dict[str, Source]:
    state = tensors_of(model)
    sources = sources_of(model, state, {})
    refuse_missing(sources)
    return sources


def tensors_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict(keep_vars=True).items() if isinstance(value, torch.Tensor)}


def _save(sources: dict[str, Source], path: Any, max_shard_size: Any, metadata: Mapping[str, str] | None, memory: Any, threads: int, progress: Progress,
          discard: Iterable[str] = ()) -> CopySummary:
    sources, kept_as = by_rule_of_safetensors(sources, discard)
    # A note is for names of one tensor; of a part of another one there is only the note.
    notes = {alias: kept for alias, kept in kept_as.items() if alias not in (metadata or {})}
    warn_of_memory(sources, memory)
    text = os.fspath(path)
    request = {"max_shard_bytes": None if max_shard_size is None else size(max_shard_size, "max_shard_size"), "overwrite": True}
    if not text.endswith((".safetensors", ".safetensors.index.json")):
        request |= {"replaces": ["model.safetensors", "model.safetensors.index.json"], "format": "safetensors"}
        text = text.rstrip(os.sep) + os.sep
    return write_sources(text, sources, metadata={**(metadata or {}), **notes}, request=request, storages=None, side_files=[], memory=memory,
                         threads=threads, progress=progress)


# ---- loading

def torch_type(tensor: Any) -> Any:
    found = getattr(torch, tensor.dtype.name, None)
    return found if isinstance(found, torch.dtype) and not tensor._packed else None


def _refuse_foreign_types(checkpoint: Checkpoint, names: Iterable[str]) -> None:
    for name in names:
        if torch_type(checkpoint[name]) is None:
            raise UnsupportedError(f"torch has no type {checkpoint[name].dtype.name}", tensor=name)


def compare(checkpoint: Checkpoint, state: Mapping[str, torch.Tensor], strict: bool) -> tuple[list[str], list[str]]:
    """Missing and unexpected names. InvalidArgumentError with all that is wrong; nothing has been read then."""
    groups = groups_of({name: InMemory(tensor) for name, tensor in state.items()})
    groups += _same_objects(state)
    alias_of: dict[str, Sequence[str]] = {name: group for group in groups for name in group}
    missing = [name for name in state if name not in checkpoint and not any(other in checkpoint for other in alias_of.get(name, ()))]
    unexpected = [name for name in checkpoint if name not in state]
    problems = [f"'{name}' has shape {list(checkpoint[name].shape)}, and the module {list(state[name].shape)}" for name in checkpoint
                if name in state and tuple(state[name].shape) != tuple(checkpoint[name].shape)]
    for name in checkpoint:
        if name in state and torch_type(checkpoint[name]) is None:
            problems.append(f"'{name}' is {checkpoint[name].dtype.name}, which torch does not have")
        elif name in state and torch_type(checkpoint[name]) != state[name].dtype and not (
                torch_type(checkpoint[name]).is_floating_point and state[name].dtype.is_floating_point):
            problems.append(f"'{name}' is {checkpoint[name].dtype.name}, and the module's is {str(state[name].dtype).removeprefix('torch.')}")
    if strict and missing:
        problems.append(f"missing: {', '.join(missing)}")
    if strict and unexpected:
        problems.append(f"unexpected: {', '.join(unexpected)}")
    if problems:
        raise InvalidArgumentError("the checkpoint does not fit the module: " + "; ".join(problems), path=checkpoint.path)
    return missing, unexpected


def _same_objects(state: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Names of one parameter: what tells for those that have no memory yet."""
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def fill(checkpoint: Checkpoint, tensors: Mapping[str, torch.Tensor], memory: Any, threads: int, progress: Progress) -> None:
    """From the files straight into the memory of tensors on the CPU; each memory once."""
    boxes, seen = [], set()
    for name, tensor in tensors.items():
        identity = InMemory(tensor).identity
        if tensor.numel() == 0 or (identity is not None and identity in seen):
            continue
        seen.add(identity)
        boxes.append((name, None, tensor.detach()))
    checkpoint.read(boxes, memory=memory, threads=threads, progress=progress)
