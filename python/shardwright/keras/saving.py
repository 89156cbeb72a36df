"""Weights of a live model into files, from where they lie."""
from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from ..arrays import Producer, source_of
from ..dtypes import numpy_dtype
from ..errors import AlreadyExistsError, InvalidArgumentError, UnsupportedError
from ..memory import DEFAULT_MEMORY, size
from ..progress import Progress
from ..saving import CopySummary, write
from .report import shown
from .walk import Saveable, is_variable, record, require_built, walk

# What a layer computes to save is kept until it is written, up to this size; beyond, it is computed once more when its turn comes.
_KEEP_BYTES = 1 << 20
_FILE_ENDINGS = (".h5", ".hdf5", ".json", ".keras", ".npz", ".npy", ".pt", ".pth", ".bin", ".ckpt", ".zip")


def save_weights(model: Any, path: str | os.PathLike[str], max_shard_size: float | str | None = None, *, overwrite: bool = True,
                 manifest: bool = False, random_state: bool = False, strict: bool = False, memory: int | str = DEFAULT_MEMORY,
                 threads: int = 0, progress: Progress | str = "auto") -> CopySummary:
    """Saves the weights of a Keras model, slots of its optimizer included, all or nothing.

    path: its ending says the layout. x.weights.json: Keras's shards, x_00000.weights.h5 and so on, with that index; x.weights.h5: one
        file; model.load_weights() of plain Keras reads either. x.safetensors, x.safetensors.index.json, or a directory: safetensors.
    max_shard_size: GiB as a number, as in Keras, or text, "500MB". None: 5 GB for an index or a directory. The next shard begins with the
        variable that would take this one over the limit; a variable larger than the limit gets a shard to itself, with a warning
        (strict: an error).
    overwrite: replace what is there, also shards that are no longer needed; False: AlreadyExistsError.
    manifest: read back what was written, and put content hashes beside it, for load_weights(verify=True).
    random_state: also save the states of seed generators, which Keras leaves out (and ignores): dropout then goes on as it would have.
    memory: bytes that may be used beside the model. threads: workers; 0: as many as pay. progress: as in load_weights().

    What stood at `path` is there, whole, until the new set is; the index comes last. Variables that layers share are stored once.
    Sharded arrays are written shard by shard, and never gathered. Of a model that is spread over processes (jax.distributed) all call this, and
    each writes what it holds. Raises what shardwright.save() raises.
    """
    require_built(model, "its weights are saved")
    _check_name(os.fspath(path))
    return save_values(model, os.fspath(path), {}, {
        "max_shard_bytes": shard_bytes(max_shard_size), "overwrite": bool(overwrite), "manifest": bool(manifest),
        "strict": bool(strict)}, random_state, memory, threads, progress)


def save_values(model: Any, path: str, metadata: Mapping[str, Any], request: Mapping[str, Any], random_state: bool, memory: int | str,
                threads: int, progress: Progress | str) -> CopySummary:
    """metadata: for the index, beside what is always there. request: fields of write()."""
    weights, ties = _weights(model, random_state)
    sources = [source_of(name, value) for name, value in weights.items()]
    values = {}
    if path.endswith((".weights.json", ".weights.h5", ".keras")):
        values["keras.names"] = json.dumps(_labels(model), ensure_ascii=False)
    if path.endswith(".weights.json"):
        dtypes = {source.name: source.dtype for source in sources}
        dtypes.update((alias, dtypes[kept]) for alias, kept in ties.items())
        values["metadata"] = json.dumps({**metadata, "dtypes": dtypes}, ensure_ascii=False)
    nbytes = sum(math.prod(source.shape) * numpy_dtype(source.dtype).itemsize for source in sources)
    summary = write(sources, ties, values, {**request, "target": path}, memory, threads, shown(progress, nbytes))
    for warning in summary.warnings:
        warnings.warn(f"{path}: {warning}", stacklevel=3)
    return summary


def _check_name(path: str) -> None:
    """Refuses endings that would make something else than is meant."""
    if "://" in path:
        raise UnsupportedError("weights are saved on this machine's file systems only", path=path,
                               hint="save here, then upload the files that the returned summary lists, the index last")
    name = os.path.basename(path.rstrip("/"))
    file, directory = name.endswith((".weights.h5", ".weights.json", ".safetensors", ".safetensors.index.json")), os.path.isdir(path)
    if file and directory:
        raise AlreadyExistsError("a directory stands where a file is to be written", path=path)
    if not file and not directory and name.endswith(_FILE_ENDINGS):
        hint = "save_model() makes .keras files" if name.endswith(".keras") else None
        raise InvalidArgumentError("this name does not say which layout is meant", path=path, hint=hint,
                                   expected="x.weights.json, x.weights.h5, x.safetensors or a directory")


def shard_bytes(limit: float | str | None) -> int | None:
    """Numbers, and text that is a number, are GiB, as Keras has it."""
    if limit is None:
        return None
    if isinstance(limit, str) and not _is_number(limit):
        return size(limit, "max_shard_size")
    gib = math.nan if isinstance(limit, bool) else float(limit)
    if not 1 <= gib * 2**30 <= 2**63:  # of NaN too
        raise InvalidArgumentError("max_shard_size is not a size", found=repr(limit), expected="GiB as a number, or text such as '5GB'")
    return int(gib * 2**30)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _labels(model: Any) -> dict[str, str]:
    """Names of layers, for the attributes that Keras gives their groups."""
    return {saveable.file_name("").rstrip("/"): saveable.label for saveable in walk(model).saveables
            if saveable.label is not None and hasattr(saveable.object, "save_own_variables")}


def _weights(model: Any, random_state: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Names to values, in Keras's order, and further names of variables that several layers share."""
    walked = walk(model)
    weights: dict[str, Any] = {}
    ties: dict[str, str] = {}
    names: dict[int, str] = {}
    for saveable in walked.saveables:
        computed: dict[str, Any] = {}
        for key, value in record(saveable.object).items():
            name = saveable.file_name(key)
            if not is_variable(value):
                computed[key] = _array(value)
            elif id(value) in names:
                ties[name] = names[id(value)]
                continue
            else:
                names[id(value)] = name
            weights[name] = value.value if is_variable(value) else computed[key]
        weights.update((saveable.file_name(key), value) for key, value in _made_late(saveable, computed).items())
    if random_state:
        for path, state in walked.seeds.items():
            weights[f"{path}/vars/0"] = state.value
    return weights, ties


def _array(value: Any) -> Any:
    """What a layer put into the store, if it is no variable: arrays of the backend as they are, anything else as NumPy sees it."""
    return value if keras.ops.is_tensor(value) else np.asarray(value)


def _made_late(saveable: Saveable, computed: dict[str, Any]) -> dict[str, Any]:
    """The same values; large ones are dropped, and computed again when they are to be written, so that one layer's are in memory at a time."""
    if sum(int(np.prod(value.shape)) * 8 for value in computed.values()) <= _KEEP_BYTES:
        return computed
    return {key: _producer(saveable.object, key, value) for key, value in computed.items()}


def _producer(layer: Any, key: str, value: Any) -> Producer:
    dtype = keras.backend.standardize_dtype(value.dtype)
    return Producer(tuple(value.shape), dtype, whole=lambda: _host(record(layer)[key]))


def _host(value: Any) -> Any:
    return keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else np.asarray(value)
