"""Names and shapes as a checkpoint of a transformers model has them, which its modules may not: experts fused into one weight, renamed layers.

transformers undoes its own conversions here, on tensors without data; what it does to them says which part of which weight each result is.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .. import _core
from ..errors import AbortedError, InvalidArgumentError, UnsupportedError
from .sources import InFile, InMemory, Missing, Onloaded, PartOfSpread, Source, contiguous_strides, is_spread, is_wrapped


class _Watch(TorchFunctionMode):
    """Copies that change nothing are views, so that a result still says what it is a part of; of others it is kept what they were made of."""

    def __init__(self, names: dict[int, frozenset[str]], keep: list[Any]):
        self._names, self._keep = names, keep

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.contiguous, torch.Tensor.clone, torch.clone):
            return args[0].as_strided(args[0].shape, args[0].stride(), args[0].storage_offset())
        result = func(*args, **(kwargs or {}))
        made_of = frozenset[str]().union(*(self._names.get(storage_of(t), frozenset()) for t in _tensors_in((args, kwargs))))
        for tensor in _tensors_in(result):
            if made_of and storage_of(tensor) not in self._names:
                self._names[storage_of(tensor)] = made_of
                self._keep.append(tensor)  # its storage's number is not to be given again
        return result


def storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _tensors_in(v)]
    return [t for v in value for t in _tensors_in(v)] if isinstance(value, (list, tuple)) else []


def as_in_checkpoint(model: torch.nn.Module, sources: Mapping[str, Source]) -> tuple[dict[str, Source], dict[str, tuple[int, int]]]:
    """Sources by the names of the checkpoint, in its order; and for those that are no whole weights of the model, which storage they would lie in if
    all was converted in memory: a number, and its bytes."""
    from transformers.core_model_loading import revert_weight_conversion
    made = _stand_ins(sources)
    names = {storage_of(tensor): frozenset((name,)) for name, tensor in made.items()}
    keep: list[Any] = []
    with _Watch(names, keep):
        reverted = revert_weight_conversion(model, dict(made))
    out: dict[str, Source] = {}
    for name, view in reverted.items():
        view = view[0] if isinstance(view, list) else view
        made_of = names.get(storage_of(view), frozenset())
        origin = next(iter(made_of), "")
        if len(made_of) == 1 and storage_of(view) == storage_of(made[origin]):
            out[name] = narrowed(name, sources[origin], view)
        elif made_of:
            if any(isinstance(s, InMemory) and is_spread(s.tensor) for s in (sources[n] for n in made_of)):
                raise _not_a_box(name)
            out[name] = Onloaded(view.dtype, tuple(view.shape), _converted(model, name, {n: sources[n] for n in made_of}))
        else:
            raise InvalidArgumentError("what its conversion for the checkpoint is made of cannot be told", tensor=name)
    return out, _storages_in_memory(model, sources)


def _stand_ins(sources: Mapping[str, Source]) -> dict[str, torch.Tensor]:
    made: dict[str, torch.Tensor] = {}
    for name, source in sources.items():
        assert not isinstance(source, Missing)
        made[name] = torch.empty(source.shape, dtype=source.dtype, device="meta")
    return made


def _storages_in_memory(model: torch.nn.Module, sources: Mapping[str, Source]) -> dict[str, tuple[int, int]]:
    """As huggingface_hub sees them when it cuts shards: with the copies that conversions make."""
    from transformers.core_model_loading import revert_weight_conversion
    made = _stand_ins(sources)
    whole_ones = {storage_of(tensor): tensor.numel() for tensor in made.values()}
    reverted = {name: view[0] if isinstance(view, list) else view for name, view in revert_weight_conversion(model, dict(made)).items()}
    return {name: (storage_of(view), view.untyped_storage().nbytes()) for name, view in reverted.items()
            if whole_ones.get(storage_of(view)) != view.numel()}


def _converted(model: torch.nn.Module, name: str, sources: Mapping[str, Source]) -> Callable[[], torch.Tensor]:
    """For what is no part of one tensor: its conversion, run on the tensors that it takes."""
    def run() -> torch.Tensor:
        from transformers.core_model_loading import revert_weight_conversion
        value = revert_weight_conversion(model, {n: whole(s) for n, s in sources.items()})[name]
        return value[0] if isinstance(value, list) else value
    return run


def whole(source: Source) -> torch.Tensor:
    """The tensor itself, read; on the CPU."""
    if isinstance(source, InMemory):
        return source.tensor.detach().cpu()
    if isinstance(source, Onloaded):
        return source.load().detach().cpu()
    assert isinstance(source, InFile)
    count = 1 + sum((extent - 1) * stride for extent, stride in zip(source.shape, source.strides))
    if 0 in source.shape:
        return torch.empty(source.shape, dtype=source.dtype)
    buffer = bytearray(count * source.stored.itemsize)
    with open(source.path, "rb") as file:
        file.seek(source.offset)
        if file.readinto(buffer) != len(buffer):
            raise EOFError(f"{source.path} ends before its tensor")
    if _core.file_version(source.path) != source.version:
        raise AbortedError("a file that holds tensors is not what it was", path=source.path, hint="run again when no other program writes it")
    flat = torch.frombuffer(buffer, dtype=torch.uint8).view(source.stored)
    return flat.as_strided(source.shape, source.strides).to(source.dtype)


def narrowed(name: str, source: Source, view: torch.Tensor) -> Source:
    """The part of a source that a view of its stand-in is. UnsupportedError where it is spread over processes, and the part no box of it."""
    shape, strides, offset = tuple(view.shape), view.stride(), view.storage_offset()
    if offset == 0 and shape == getattr(source, "shape") and strides == contiguous_strides(shape):
        return source
    if isinstance(source, InMemory) and is_spread(source.tensor):
        return _box_of(name, source.tensor, view)
    if isinstance(source, InMemory) and not is_wrapped(source.tensor) and source.tensor.is_contiguous():
        t = source.tensor.detach()
        return InMemory(t.as_strided(shape, strides, t.storage_offset() + offset))
    if isinstance(source, InFile):
        start = source.offset + offset * source.stored.itemsize
        return InFile(source.path, source.file_bytes, source.version, start, source.stored, source.dtype, shape, strides)
    return Onloaded(view.dtype, shape, lambda: whole(source).contiguous().as_strided(shape, strides, offset))


def _not_a_box(name: str) -> UnsupportedError:
    return UnsupportedError("a weight of the checkpoint is made of one that is spread over processes, and is no box of it", tensor=name,
                            hint="save_original_format=False saves it as the model has it")


def _box_of(name: str, tensor: Any, view: torch.Tensor) -> PartOfSpread:
    """Where every dimension of the view is one of the tensor, or a part of it."""
    steps, left = contiguous_strides(tensor.shape), view.storage_offset()
    start, extents = [], [1] * tensor.ndim
    for step in steps:
        start.append(left // step)
        left %= step
    dims: list[int | None] = []
    for extent, step in zip(view.shape, view.stride()):
        if extent == 1:
            dims.append(None)
            continue
        d = next((d for d, own in enumerate(steps) if own == step and tensor.shape[d] > 1), None)
        if d is None or d in dims or start[d] + extent > tensor.shape[d]:
            raise _not_a_box(name)
        dims.append(d)
        extents[d] = extent
    return PartOfSpread(tensor, tuple(start), tuple(extents), tuple(dims))
