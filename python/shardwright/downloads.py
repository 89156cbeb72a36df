"""What to download of a sharded checkpoint: its index tells, and it comes first."""
from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass

from . import _core
from .errors import InvalidArgumentError, NotFoundError, TensorNotFoundError, errors_of
from .memory import size

_INDEX_ENDINGS = (".safetensors.index.json", ".weights.json", ".bin.index.json")


@dataclass(frozen=True)
class ShardFiles:
    """files: names beside the index, in its order -> what was asked for in each (tensors; of Keras's index groups of variables).

    Against a directory also, of these files, each with its size now and the size that its own header says (None when too little of it
    is there to tell): missing, cut_short (what is there can be kept, and the rest fetched), wrong (something else under that name, with
    what), whole. Without a directory these are empty.
    """

    files: dict[str, list[str]]
    missing: list[str]
    cut_short: dict[str, tuple[int, int | None]]
    wrong: dict[str, str]
    whole: dict[str, int]

    @property
    def to_fetch(self) -> list[str]:
        """Files that are missing, cut short or wrong, in the index's order. REQUIRES: a directory was looked at."""
        return [name for name in self.files if name not in self.whole]


def files_for(index: str | os.PathLike[str], names: Iterable[str] | None = None, directory: str | os.PathLike[str] | None = None, *,
              max_metadata: int | str = "1GiB") -> ShardFiles:
    """Which files of a sharded checkpoint hold given tensors, by the index alone; and which of them are there, whole.

    index: X.safetensors.index.json, X.bin.index.json, X.weights.json, or a directory with one of them, which is then looked at for the files too.
    names: tensors; None: all. Of Keras's index a variable ("layers/dense/vars/0", or as open() names it) or its group ("layers/dense/vars"), which may be in
        several files: the index does not say which variable is in which.
    directory: where the files are, or are to be. A file counts as whole when it is as long as its own header says; verify() looks at
        what is in it.

    Raises NotFoundError (no index), TensorNotFoundError (all names that the index does not have, with near ones), CorruptError, also for
    file names that leave the directory.
    """
    folder, key = _locate(os.fspath(index))
    if directory is None and os.path.isdir(index):
        directory = index
    cap = size(max_metadata, "max_metadata")
    all_files, entries, groups = _core.read_index(folder, key, cap)
    places = {name: [all_files[i] for i in where] for name, where in entries}
    wanted = list(places) if names is None else list(dict.fromkeys(_entry(name, places) if groups else name for name in names))
    absent = [name for name in wanted if name not in places]
    if absent:
        near = _core.nearest_names(absent[0], list(places), 3)
        raise TensorNotFoundError(f"{len(absent)} names are not in the index: " + ", ".join(map(repr, absent[:20])), tensor=absent[0],
                                  path=os.path.join(folder, key), hint="near names: " + ", ".join(map(repr, near)) if near else None)
    files: dict[str, list[str]] = {name: [] for name in all_files}
    for name in wanted:
        for file in places[name]:
            files[file].append(name)
    found = ShardFiles({file: held for file, held in files.items() if held}, [], {}, {}, {})
    if directory is not None:
        for file in found.files:
            _sort_in(found, file, *_core.shard_state(os.fspath(directory), file, cap))
    return found


def _locate(index: str) -> tuple[str, str]:
    if not os.path.isdir(index):
        return os.path.dirname(index) or ".", os.path.basename(index)
    with errors_of(index):
        candidates = sorted(name for name in os.listdir(index) if name.endswith(_INDEX_ENDINGS))
    if len(candidates) > 1 and "model.safetensors.index.json" in candidates:
        candidates = ["model.safetensors.index.json"]
    if not candidates:
        raise NotFoundError("no index in this directory", path=index, expected="*.safetensors.index.json, *.bin.index.json or *.weights.json")
    if len(candidates) > 1:
        raise InvalidArgumentError("more than one index in this directory", path=index, found=", ".join(candidates), hint="name one of them")
    return index, candidates[0]


def _entry(name: str, groups: Container[str]) -> str:
    """The group of Keras's index that a tensor is in, by its name in Keras's files or the one that open() gives."""
    name = name.removeprefix("/")
    inside, found, _ = f"/{name}".rpartition("/vars/")
    candidates = [name, f"{name}/vars", f"{inside}/vars".removeprefix("/") if found else name]
    return next((group for group in candidates if group in groups), candidates[-1])


def _sort_in(found: ShardFiles, file: str, state: str, there: int, expected: int | None, problem: str) -> None:
    if state == "missing":
        found.missing.append(file)
    elif state == "cut short":
        found.cut_short[file] = (there, expected)
    elif state == "wrong":
        found.wrong[file] = problem
    else:
        found.whole[file] = there
