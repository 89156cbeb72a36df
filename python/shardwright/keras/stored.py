"""Weights as they lie in files, by the object they belong to."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

from .. import _core
from ..checkpoint import Checkpoint, Tensor
from ..errors import CorruptError, InvalidArgumentError

Path = Union[str, "os.PathLike[str]"]
_MOST_METADATA = 1 << 30
# What Keras 2.13 called "layers".
_OLD_LAYERS = "_layer_checkpoint_dependencies"


class Located(NamedTuple):
    """A tensor and the checkpoint that reads it."""

    checkpoint: Checkpoint
    tensor: Tensor


@dataclass
class Stored:
    """path: for messages. groups: path of an object ("layers/dense", "" for the model) -> keys -> tensors. plain: tensors with names
    that are not Keras's."""

    path: str
    checkpoints: list[Checkpoint] = field(default_factory=list)
    groups: dict[str, dict[str, Located]] = field(default_factory=dict)
    plain: dict[str, Located] = field(default_factory=dict)

    def add(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)
        for name, tensor in checkpoint.items():
            self.put(name, Located(checkpoint, tensor))

    def put(self, name: str, located: Located) -> None:
        found = split_name(name)
        if found is None:
            self.plain[name] = located
            return
        group, key = found
        keys = self.groups.setdefault(group, {})
        if key in keys:
            raise CorruptError("two of the files hold it", tensor=name, path=located.checkpoint.path)
        keys[key] = located

    def rename(self, names: Mapping[str, str]) -> None:
        """Gives plain tensors, by their name, the name in Keras's files that is meant."""
        for name in [name for name in self.plain if name in names]:
            self.put(names[name], self.plain.pop(name))

    def close(self) -> None:
        for checkpoint in self.checkpoints:
            checkpoint.close()

    def __enter__(self) -> Stored:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def bytes_read(self) -> int:
        return sum(checkpoint.bytes_read for checkpoint in self.checkpoints)

    def names(self) -> list[str]:
        return [join_name(group, key) for group, keys in self.groups.items() for key in keys] + list(self.plain)


def split_name(name: str) -> tuple[str, str] | None:
    """"layers/dense/vars/0" -> "layers/dense", "0"; None when there is no group of variables in the name."""
    group, found, key = name.rpartition("/vars/")
    if not found:
        if not name.startswith("vars/"):
            return None
        group, key = "", name[len("vars/"):]
    return "/".join("layers" if part == _OLD_LAYERS else part for part in group.split("/")), key


def join_name(group: str, key: str) -> str:
    return f"{group}/vars/{key}" if group else f"vars/{key}"


def open_stored(path: Path | Sequence[Path], isolate: bool) -> Stored:
    """One checkpoint of any format, or the files of a set of shards, of which the index is not needed."""
    if isinstance(path, (str, os.PathLike)):
        stored = Stored(os.fspath(path))
        paths: Iterable[Any] = [path]
    else:
        paths = list(path)
        if not paths:
            raise InvalidArgumentError("the list of shard files is empty")
        stored = Stored(f"{os.fspath(paths[0])} and {len(paths) - 1} more" if len(paths) > 1 else os.fspath(paths[0]))
    try:
        for one in paths:
            stored.add(Checkpoint(_core.open(os.fspath(one), bool(isolate), _MOST_METADATA, opaque_as_bytes=True)))
    except BaseException:
        stored.close()
        raise
    return stored
