"""save_pretrained() for models that do not fit in memory: every tensor from where it is to the file it belongs into."""
from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch

from ..errors import InvalidArgumentError, UnsupportedError, errors_of
from ..memory import DEFAULT_MEMORY, size
from ..progress import Progress
from ..ranks import Ranks
from ..saving import CopySummary
from . import adapters
from .conversions import as_in_checkpoint
from .pointers import moved_pointers
from .sources import Files, InMemory, Source, is_wrapped, source_of, sources_of
from .ties import by_rule_of_safetensors, without_declared
from .writing import elements, refuse_missing, storages_of, warn_of_memory, write_sources


def save_pretrained(model: torch.nn.Module, directory: str | os.PathLike[str], *, max_shard_size: int | str = "50GB", variant: str | None = None,
                    state_dict: Mapping[str, torch.Tensor] | None = None, metadata: Mapping[str, str] | None = None, merge: bool = False,
                    save_original_format: bool = True, memory: int | str = DEFAULT_MEMORY, threads: int = 0, progress: Progress = None,
                    ranks: Ranks | None = None) -> CopySummary:
    """Saves a model as a repository that from_pretrained() loads, as its own save_pretrained() does for a model in memory: the same files and index.

    model: of transformers, wrapped by PEFT or not, or any torch.nn.Module (its weights alone then); in any state of offloading: accelerator, CPU and
        disk mixed, everything on disk, several offload folders, hooks of accelerate at any depth. It is afterwards as it was.
    max_shard_size: "5GB" (10^9) or "5GiB" (2^30), or bytes. variant: "fp16" for model.fp16.safetensors.
    state_dict: with keep_vars=True; what is saved instead of the model's own.
    merge: of a model with PEFT adapters, the base with the active adapters merged in, one weight at a time; else what PEFT saves, the adapter alone.
    save_original_format: names and shapes as the model's checkpoints have them, else as its modules do.
    memory: bytes that may be used beside the model and one tensor, where some have to be onloaded.
    ranks: processes that save together, each what it holds. None: those of torch.distributed where a tensor is spread over them.

    Bytes are read from where they are: memory, an offload folder, the safetensors that a model was loaded from. A tensor that can only be had by
    onloading is onloaded alone and released. All is checked first, nothing appears until all is written, and then all at once; the directory may be
    the one that the model is read from: its pointers then lead to the new files. What the old index named and is not replaced is removed, nothing else.

    Raises InvalidArgumentError for tensors that have no data anywhere (all named) or share memory undeclared, ResourceExhaustedError when the disk is
    too small, both before anything is written; UnsupportedError, AbortedError (a file of the model has changed). Warns of too little free memory.
    """
    model = unwrapped(model)
    adapters.refuse_wrongly_merged(model)
    if adapters.is_wrapped_model(model) and not merge:
        return adapters.save_adapters(model, directory, max_shard_size=max_shard_size, memory=memory, threads=threads, progress=progress)
    if merge and not adapters.is_wrapped_model(model):
        raise InvalidArgumentError("there is no adapter to be merged", found=type(model).__name__, expected="a PeftModel")
    base = adapters.base_of(model)
    if getattr(base, "_hf_peft_config_loaded", False):
        raise UnsupportedError("adapters that transformers itself has loaded are not saved here", hint="model.save_pretrained() saves them: they are small")
    state, file_metadata = _state_of(model, base, state_dict)
    merged = adapters.merged_sources(model) if merge else None
    ties: Mapping[str, str] = getattr(base, "all_tied_weights_keys", None) or {}
    sources = sources_of(base, state, ties) if merged is None else merged
    refuse_missing(sources)
    shared = _shared_storages(sources)
    if not _is_of_transformers(base):
        sources, kept_as = by_rule_of_safetensors(sources)
        request = _request(max_shard_size, variant, None)
        return _write(model, directory, sources, {**kept_as, **file_metadata, **(metadata or {})}, request, None, [], memory, threads, progress, ranks)
    parameters = base.num_parameters() if merged is None else sum(elements(s) for s in sources.values())  # type: ignore[operator]
    sources, kept_as = without_declared(base, sources)
    parameters -= _counted_twice(state, kept_as, merged is not None)
    alone = {name: name not in shared for name in sources}
    converted: dict[str, tuple[int, int]] = {}
    if save_original_format:
        sources, converted = as_in_checkpoint(base, sources)
    storages = storages_of(sources, converted, alone)
    with _side_files(base) as side_files:
        request = _request(max_shard_size, variant, parameters)
        return _write(base, directory, sources, {**file_metadata, **(metadata or {})}, request, storages, side_files, memory, threads, progress,
                      ranks)


def _is_of_transformers(model: torch.nn.Module) -> bool:
    loaded = sys.modules.get("transformers")
    return loaded is not None and isinstance(model, loaded.PreTrainedModel)


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Without what compiles it or spreads it over processes."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _state_of(model: torch.nn.Module, base: torch.nn.Module, given: Mapping[str, torch.Tensor] | None) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors by name, and metadata that a quantiser wants beside them."""
    metadata: dict[str, str] = {}
    quantizer = getattr(base, "hf_quantizer", None)
    if given is None and quantizer is not None:
        if not quantizer.is_serializable():
            method = quantizer.quantization_config.quant_method
            raise UnsupportedError("its quantisation cannot be saved", found=str(getattr(method, "value", method)))
        given, metadata = quantizer.get_state_dict_and_metadata(_WithWrapped(base))
    if given is None:
        given = base.state_dict(keep_vars=True)
    ignored = set(getattr(base, "_keys_to_ignore_on_save", None) or ())
    state = {name: value for name, value in given.items() if isinstance(value, torch.Tensor) and name not in ignored}
    left = [name for name, value in given.items() if not isinstance(value, (torch.Tensor, str)) and name not in ignored]
    if left:
        raise UnsupportedError("the state dict holds what is no tensor", tensor=left[0], found=type(given[left[0]]).__name__)
    return state, {k: v for k, v in (metadata or {}).items() if k != "format"}


class _WithWrapped:
    """A model whose state dict has the tensors made of others as they are in memory, where hooks keep them there: a quantiser takes them apart."""

    def __init__(self, model: torch.nn.Module):
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state, files = self._model.state_dict(*args, **kwargs), Files()
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and is_wrapped(value):
                source = source_of(self._model, name, value, files)
                state[name] = source.tensor if isinstance(source, InMemory) else value
        return state  # type: ignore[no-any-return]


def _shared_storages(sources: Mapping[str, Source]) -> set[str]:
    """Names of tensors in memory whose storage is another one's too."""
    by_storage: dict[int, list[str]] = {}
    for name, source in sources.items():
        if isinstance(source, InMemory) and not is_wrapped(source.tensor) and source.tensor.layout is torch.strided:
            by_storage.setdefault(source.tensor.untyped_storage().data_ptr(), []).append(name)
    return {name for names in by_storage.values() if len(names) > 1 for name in names}


def _counted_twice(state: Mapping[str, torch.Tensor], kept_as: Mapping[str, str], always: bool) -> int:
    """Elements of parameters that hooks have made two of one, which the model counts twice."""
    return sum(state[alias].numel() for alias, name in kept_as.items()
               if alias in state and (always or state[alias] is not state.get(name)) and isinstance(state[alias], torch.nn.Parameter))


def _request(max_shard_size: int | str, variant: str | None, parameters: int | None) -> dict[str, Any]:
    settings = [("variant", variant)] if variant else []
    settings += [("total_parameters", str(parameters))] if parameters is not None else []
    dotted = f".{variant}" if variant else ""
    return {"max_shard_bytes": size(max_shard_size, "max_shard_size"), "settings": settings, "overwrite": True, "format": "safetensors",
            "replaces": [f"model{dotted}.safetensors", f"model.safetensors.index{dotted}.json"]}


def _write(model: torch.nn.Module, directory: Any, sources: dict[str, Source], metadata: Mapping[str, str], request: Mapping[str, Any],
           storages: str | None, side_files: list[tuple[str, str]], memory: int | str, threads: int, progress: Progress,
           ranks: Ranks | None) -> CopySummary:
    if not sources:
        raise InvalidArgumentError("the model has no tensors")
    if not os.fspath(directory):
        raise InvalidArgumentError("the name of the directory is empty")
    path = os.path.abspath(os.fspath(directory))
    if os.path.isfile(path):
        raise InvalidArgumentError("a file stands where a directory is to be written", path=path)
    warn_of_memory(sources, memory)
    with _parents(path), moved_pointers(model, path, sources, request["replaces"]):
        return write_sources(path + os.sep, sources, metadata=metadata, request=request, storages=storages, side_files=side_files,
                             memory=memory, threads=threads, progress=progress, ranks=ranks)


@contextmanager
def _parents(path: str) -> Iterator[None]:
    """Directories above it, which go again after a failure."""
    folder = os.path.dirname(path)
    made = [folder]
    while not os.path.lexists(made[-1]):
        made.append(os.path.dirname(made[-1]))
    try:
        with errors_of(folder):
            os.makedirs(folder, exist_ok=True)
        yield
    except BaseException:
        for one in made[:-1]:
            with suppress(OSError):
                os.rmdir(one)
        raise


@contextmanager
def _side_files(model: Any) -> Iterator[list[tuple[str, str]]]:
    """What transformers writes beside the weights: configuration, generation configuration, code of the model's own. As files that have no name any
    more: none is left, however this ends."""
    config = model.config
    before = {name: getattr(config, name, None) for name in ("dtype", "architectures")}
    folder = tempfile.mkdtemp(prefix="shardwright-")
    files: dict[str, int] = {}
    try:
        config.dtype = str(model.dtype).removeprefix("torch.")
        config.architectures = [type(model).__name__.removeprefix("FSDP")]
        if model.is_remote_code():
            from transformers.dynamic_module_utils import custom_object_save
            custom_object_save(model, folder, config=config)
        config.save_pretrained(folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)
        files = {name: os.open(os.path.join(folder, name), os.O_RDONLY) for name in sorted(os.listdir(folder))}
    finally:
        for name, value in before.items():
            setattr(config, name, value)
        shutil.rmtree(folder, ignore_errors=True)
    try:
        yield [(name, f"/proc/self/fd/{file}") for name, file in files.items()]
    finally:
        for file in files.values():
            os.close(file)

