"""What a step has beside its tensors: metrics, metadata and states of iterators, as files and back."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from .errors import InvalidArgumentError
from .tree import is_unicode

METRICS = "metrics/metrics"


def metrics_of(given: Any) -> dict[str, float]:
    """InvalidArgumentError naming what is no number."""
    if not isinstance(given, Mapping):
        raise InvalidArgumentError("metrics are a dict of numbers", found=repr(given))
    metrics = {}
    for name, value in given.items():
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            metrics[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise InvalidArgumentError(f"the metric '{name}' is no number", found=repr(value)) from None
    return metrics


def metadata_text(given: Any) -> str:
    """InvalidArgumentError for what would not come back as it is."""
    if not isinstance(given, Mapping):
        raise InvalidArgumentError("metadata is a dict, to be kept as JSON", found=repr(given))
    return json_text(dict(given), "metadata")


def json_text(value: Any, what: str, nan: bool = False) -> str:
    _check(value, what)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=nan)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} is not JSON", found=str(error)) from None
    if not is_unicode(text):
        raise InvalidArgumentError(f"{what} is not JSON", found="half a surrogate pair in a text")
    return text


def _check(value: Any, what: str, depth: int = 0) -> None:
    """Keys that JSON would make text of, and numbers that it would round."""
    if depth > 100:
        raise InvalidArgumentError(f"{what} has more than 100 levels, or holds itself")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise InvalidArgumentError(f"{what} has a number that is too large for 64 bits", found=repr(value), hint="as text it stays whole")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidArgumentError(f"a key in {what} is no text, and would come back as one", found=repr(key))
    for child in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        _check(child, what, depth + 1)


# ---- states of iterators

_KIND = ".kind"


def files_of_iterator(state: Any, index: int, count: int) -> list[tuple[str, str | bytes]]:
    """JSON under the name that Orbax and Grain read; text and bytes as they are, with a word beside them that says which."""
    name = f"iterator/process_{index}-of-{count}"
    if isinstance(state, (bytes, bytearray)):
        return [(f"{name}.json", bytes(state)), (name + _KIND, "bytes")]
    if not isinstance(state, str):
        return [(f"{name}.json", json_text(state, "iterator_state"))]
    if not is_unicode(state):
        raise InvalidArgumentError("iterator_state is no Unicode", found=ascii(state)[:80])
    return [(f"{name}.json", state.encode()), (name + _KIND, "text")]


def states_of_iterators(folder: str) -> dict[tuple[int, int], str]:
    """Files by (index, count)."""
    states = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        index, _, count = name.removeprefix("process_").removesuffix(".json").partition("-of-")
        if index.isdigit() and count.isdigit() and name.endswith(".json"):
            states[int(index), int(count)] = os.path.join(folder, name)
    return states


def read_state(path: str) -> Any:
    """As it was given; where no word of ours says what it was, JSON, and text that is none."""
    with open(path, "rb") as file:
        content = file.read()
    kind = ""
    beside = path.removesuffix(".json") + _KIND
    if os.path.isfile(beside):
        with open(beside, encoding="utf-8") as file:
            kind = file.read()
    if kind == "bytes":
        return content
    text = content.decode()
    try:
        return text if kind == "text" else json.loads(text)
    except ValueError:
        return text
