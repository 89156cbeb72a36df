"""Whole models: .keras archives as Keras writes them, or with the weights in shards beside them."""
from __future__ import annotations

import datetime
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import keras

from ..errors import AlreadyExistsError, CorruptError, Error, InvalidArgumentError, NotFoundError, UnsupportedError, errors_of
from ..jobs import hash as hash_checkpoint
from ..memory import DEFAULT_MEMORY
from ..progress import Progress
from ..saving import CopySummary
from .loading import load_weights
from .saving import save_values, shard_bytes
from .states import ASSETS, CONFIG, is_run, restore_step, step_of
from .walk import require_built, walk

try:
    from keras.src.saving.serialization_lib import ObjectSharingScope
except ImportError as _missing:
    raise UnsupportedError(f"Keras {keras.__version__} keeps shared objects of a configuration in another way than known here") from _missing

_CONFIG, _METADATA, _WEIGHTS, _POINTER = "config.json", "metadata.json", "model.weights.h5", "shardwright.json"
# A member that claims more than this, and more than 100 times what it takes in the archive, is no configuration.
_MOST_BYTES = 256 << 20


def save_model(model: Any, path: str | os.PathLike[str], max_shard_size: float | str | None = None, *, overwrite: bool = True,
               manifest: bool = False, random_state: bool = False, memory: int | str = DEFAULT_MEMORY, threads: int = 0,
               progress: Progress | str = "auto") -> CopySummary:
    """Saves a Keras model with its configuration, assets, weights and the state of its optimizer.

    path: x.keras. Without max_shard_size the archive is what model.save() makes, weights inside, and plain Keras loads it. With it, the
        archive holds all but the weights, and these lie beside it as x.weights.json and its shards: load_model() here takes both; for
        plain Keras, model.load_weights("x.weights.json") reads the weights.
    Everything else as in save_weights(). The weights are there before the archive that needs them.
    """
    target = os.fspath(path)
    if not target.endswith(".keras"):
        raise InvalidArgumentError("a model is saved to a .keras file", path=target)
    if "://" in target:
        raise UnsupportedError("models are saved on this machine's file systems only", path=target)
    if os.path.isdir(target):
        raise AlreadyExistsError("a directory stands where the model is to be written", path=target)
    require_built(model, "it is saved")
    if any(not getattr(variable.value, "is_fully_addressable", True) for variable in model.variables):
        raise UnsupportedError("a model that is spread over processes has no one to write its archive",
                               hint="save_weights() saves its weights, from all processes; the configuration is the same in each")
    if not overwrite and os.path.exists(target):
        raise AlreadyExistsError("a model is there already", path=target, hint="overwrite=True replaces it")
    limit = shard_bytes(max_shard_size)
    directory = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(directory):
        raise NotFoundError("the directory to write into does not exist", path=directory, hint="create it first")
    with errors_of(target), tempfile.TemporaryDirectory(prefix=".shardwright-model-", dir=directory) as staging:
        archive = os.path.join(staging, os.path.basename(target))
        if limit is None:
            _write_archive(model, archive, staging, None)
            summary = _with_weights(model, archive, target, random_state, memory, threads, progress)
        else:
            index = os.path.basename(target)[:-len(".keras")] + ".weights.json"
            digest = _write_archive(model, archive, staging, index)
            request = {"max_shard_bytes": limit, "manifest": bool(manifest), "overwrite": bool(overwrite)}
            summary = save_values(model, os.path.join(os.path.dirname(target), index), {"model": digest}, request, random_state, memory, threads, progress)
        _put(archive, target)
    if limit is None and (manifest or _has_hashes(target)):  # those of the model that stood there are none of this one's
        hash_checkpoint(target, write=True, memory=memory, threads=threads)
    return summary


def _has_hashes(target: str) -> bool:
    path = os.path.join(os.path.dirname(target), "shardwright.manifest.json")
    try:
        with open(path, "rb") as file:
            return os.path.basename(target) in _object(file.read(), path, "the manifest").get("checkpoints", ())
    except (OSError, CorruptError):
        return False


def _with_weights(model: Any, archive: str, target: str, random_state: bool, memory: int | str, threads: int, progress: Progress | str) -> CopySummary:
    """Puts the weights into an archive that is to be moved to `target`, and speaks of that."""
    try:
        summary = save_values(model, archive, {}, {"overwrite": True}, random_state, memory, threads, progress)
    except Error as error:
        if error.path is not None and error.path.startswith(archive):
            error.path = target
        raise
    return replace(summary, target=target)


def load_model(path: str | os.PathLike[str], custom_objects: dict[str, Any] | None = None, compile: bool = True, safe_mode: bool = True, *,
               step: int | str | None = None, weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None, verify: bool = False, isolate: bool = False,
               memory: int | str = DEFAULT_MEMORY, threads: int = 0, progress: Progress | str = "auto") -> Any:
    """Makes a model of a .keras file, as Keras or save_model() wrote it, of a directory as model.save(..., zipped=False) makes it, or of a run that
    CheckpointCallback or Keras's OrbaxCheckpoint has saved, with the state of its optimizer and metrics.

    step: which of a run, as in restore(); None: the latest that is complete.
    custom_objects, compile, safe_mode: as in keras.saving.load_model. weights: take them from there, whatever the file says.
    Everything else as in load_weights().
    """
    source = os.fspath(path)
    if is_run(source):
        if weights is not None:
            raise InvalidArgumentError("a run has the weights of its models", path=source, found=f"weights={weights!r}")
        return _model_of_step(source, step, custom_objects, compile, safe_mode, verify=verify, memory=memory, threads=threads, progress=progress)
    if step is not None:
        raise InvalidArgumentError("this is no run, and has no steps", path=source, found=f"step={step!r}")
    with errors_of(source), _Contents(source) as contents:
        config = _object(contents.read(_CONFIG), source, f"member '{_CONFIG}'")
        where = weights if weights is not None else contents.weights()
        model = _model_of(config if compile else {**config, "compile_config": None}, custom_objects, safe_mode)
        load_weights(model, where, verify=verify, isolate=isolate, memory=memory, threads=threads, progress=progress)
        with tempfile.TemporaryDirectory() as folder:
            contents.unpack_assets(folder)
            _load_assets(model, folder)
    return model


def _load_assets(model: Any, folder: str) -> None:
    for saveable in walk(model).saveables:
        if hasattr(saveable.object, "load_assets") and os.path.isdir(os.path.join(folder, saveable.path)):
            saveable.object.load_assets(os.path.join(folder, saveable.path))


def _model_of_step(path: str, step: int | str | None, custom_objects: dict[str, Any] | None, compile: bool, safe_mode: bool, **options: Any) -> Any:
    with step_of(path, step) as (manager, info):
        directory = manager.path(info.step)
        if not os.path.isdir(os.path.join(directory, CONFIG)):
            raise NotFoundError("the step has no configuration of a model", path=directory, expected=f"an item '{CONFIG}'",
                                hint="it was saved with save_weights_only=True: make the model, and use restore()")
        config = _object(manager.restore(info.step, item=CONFIG)["config"].encode(), directory, "the configuration")
        model = _model_of(config if compile else {**config, "compile_config": None}, custom_objects, safe_mode)
        restore_step(model, manager, info, **options)
        if os.path.isdir(os.path.join(directory, ASSETS)):
            with tempfile.TemporaryDirectory() as folder:
                _unpack(manager.restore(info.step, item=ASSETS), folder, directory)
                _load_assets(model, folder)
    return model


def _unpack(tree: dict[str, Any], folder: str, path: str) -> None:
    """Files kept as bytes by the parts of their paths."""
    for name, content in tree.items():
        if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
            raise CorruptError(f"an asset '{name}' would be unpacked somewhere else", path=path)
        if isinstance(content, dict):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            _unpack(content, os.path.join(folder, name), path)
        else:
            content.tofile(os.path.join(folder, name))


def _model_of(config: dict[str, Any], custom_objects: dict[str, Any] | None, safe_mode: bool) -> Any:
    with ObjectSharingScope():
        return keras.saving.deserialize_keras_object(config, custom_objects=custom_objects, safe_mode=safe_mode)


# ---- writing

def _write_archive(model: Any, archive: str, staging: str, index: str | None) -> str:
    """Everything but the weights. index: name of the index of weights beside it. Returns a digest of what was written, the date left out."""
    config = json.dumps(config_of(model))
    about = {"keras_version": keras.__version__, "date_saved": datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")}
    digest = hashlib.sha256(config.encode())
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr(zipfile.ZipInfo(_METADATA), json.dumps(about))
        opened.writestr(zipfile.ZipInfo(_CONFIG), config)
        for name, file in assets_of(model, os.path.join(staging, "assets")):
            opened.write(file, f"assets/{name}")
            digest.update(name.encode())
            with open(file, "rb") as asset:
                for part in iter(lambda: asset.read(1 << 20), b""):
                    digest.update(part)
        if index is not None:
            opened.writestr(zipfile.ZipInfo(_POINTER), json.dumps({"weights": index, "model": digest.hexdigest()}))
    return digest.hexdigest()


def config_of(model: Any) -> Any:
    """What Keras makes a model of, as JSON."""
    with ObjectSharingScope():
        return keras.saving.serialize_keras_object(model)


def assets_of(model: Any, folder: str) -> Iterator[tuple[str, str]]:
    """Files that objects of the model save beside their variables: name within the assets, path."""
    for saveable in walk(model).saveables:
        if hasattr(saveable.object, "save_assets"):
            inner = os.path.join(folder, saveable.path) if saveable.path else folder
            os.makedirs(inner, exist_ok=True)
            saveable.object.save_assets(inner)
    for at, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            file = os.path.join(at, name)
            yield os.path.relpath(file, folder).replace(os.sep, "/"), file


def _put(archive: str, target: str) -> None:
    """The archive, on the disk, under its name."""
    with open(archive, "rb") as written:
        os.fsync(written.fileno())
    os.replace(archive, target)
    directory = os.open(os.path.dirname(os.path.abspath(target)), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


# ---- reading

def _object(text: bytes, path: str, what: str) -> dict[str, Any]:
    """Of JSON text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{what} is not valid JSON: {error}", path=path) from None
    if not isinstance(found, dict):
        raise CorruptError(f"{what} is no JSON object", path=path, found=type(found).__name__)
    return found


class _Contents:
    """An archive, or a directory with the same files."""

    def __init__(self, path: str):
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        if os.path.isdir(path):
            self.names = [os.path.relpath(os.path.join(at, name), path).replace(os.sep, "/") for at, _, names in os.walk(path) for name in names]
        else:
            try:
                self._zip = zipfile.ZipFile(path)
            except zipfile.BadZipFile:
                raise CorruptError("not a .keras archive", path=path) from None
            self.names = self._zip.namelist()
        if _CONFIG not in self.names:
            raise CorruptError("holds no configuration of a model", path=path, expected=f"a member '{_CONFIG}'",
                               hint="load_weights() loads weights into a model that you make")

    def __enter__(self) -> _Contents:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._zip is not None:
            self._zip.close()

    def read(self, name: str) -> bytes:
        if self._zip is None:
            with open(os.path.join(self.path, name), "rb") as file:
                return file.read()
        with self._reading(name):
            return self._zip.read(self._checked(name))

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            if isinstance(error, Error):
                raise
            raise CorruptError(f"member '{name}' cannot be read: {error}", path=self.path) from None

    def _checked(self, name: str) -> zipfile.ZipInfo:
        assert self._zip is not None
        info = self._zip.getinfo(name)
        if info.file_size > _MOST_BYTES and info.file_size > 100 * info.compress_size:
            raise CorruptError(f"member '{name}' claims far more bytes than the archive has for it", path=self.path,
                               found=f"{info.file_size} bytes of {info.compress_size} stored")
        return info

    def weights(self) -> str:
        """Where the weights are: in the archive, in the directory, or beside it, of the same model."""
        if _WEIGHTS in self.names:
            return self.path if self._zip is not None else os.path.join(self.path, _WEIGHTS)
        folder = os.path.dirname(self.path) if self._zip is not None else self.path
        if _POINTER not in self.names:
            raise CorruptError("holds no weights", path=self.path, expected=f"a member '{_WEIGHTS}'", hint="weights=... says where they are")
        pointer = _object(self.read(_POINTER), self.path, f"member '{_POINTER}'")
        beside = os.path.basename(self.path)[:-len(".keras")] + ".weights.json"
        for name in (beside, pointer.get("weights")):
            index = os.path.join(folder, os.path.basename(str(name)))
            if os.path.isfile(index):
                self._check_same_model(index, pointer.get("model"))
                return index
        raise NotFoundError("the weights that belong to the model are not beside it", path=os.path.join(folder, str(pointer.get("weights"))),
                            hint="fetch the index and its shards too, or say with weights=... where they are")

    def _check_same_model(self, index: str, digest: Any) -> None:
        with open(index, "rb") as file:
            metadata = _object(file.read(), index, "the index").get("metadata")
        found = metadata.get("model") if isinstance(metadata, dict) else None
        if found is not None and found != digest:
            raise CorruptError("the weights beside the model were saved with another configuration or other assets", path=index,
                               hint="one of the two files is of another save; weights=... loads them all the same")

    def unpack_assets(self, folder: str) -> None:
        for name in self.names:
            parts = name.split("/")
            if parts[0] != "assets" or name.endswith("/") or len(parts) < 2:
                continue
            if ".." in parts or "" in parts or os.path.isabs(name) or "\\" in name:
                raise CorruptError(f"member '{name}' would be unpacked somewhere else", path=self.path)
            into = os.path.join(folder, *parts[1:])
            os.makedirs(os.path.dirname(into), exist_ok=True)
            if self._zip is None:
                shutil.copyfile(os.path.join(self.path, name), into)
                continue
            with self._reading(name), self._zip.open(self._checked(name)) as member, open(into, "wb") as file:
                shutil.copyfileobj(member, file)
