"""Which tensors are wanted, each with what is wished for it: where it goes, in the terms of one framework."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .checkpoint import Checkpoint, Tensor
from .errors import InvalidArgumentError, TensorNotFoundError

_MOST_LINES = 20


def wished(checkpoint: Checkpoint, wishes: Any) -> Iterator[tuple[Tensor, Any]]:
    """wishes: a mapping of names, for those alone; or a function of the tensor that returns the wish, None to leave it out; anything else
    is the wish for all. TensorNotFoundError for names that are not there."""
    if isinstance(wishes, Mapping):
        missing = [name for name in wishes if name not in checkpoint]
        if missing:
            more = f", nor are {len(missing) - 1} more of those wanted" if len(missing) > 1 else ""
            near = checkpoint._core.near(missing[0])
            raise TensorNotFoundError("no such tensor" + more, tensor=missing[0], path=checkpoint.path,
                                      hint="near names: " + ", ".join(map(repr, near)) if near else None)
        yield from ((checkpoint[name], wish) for name, wish in wishes.items())
    else:
        for tensor in checkpoint.values():
            wish = wishes(tensor) if callable(wishes) else wishes
            if wish is not None:
                yield tensor, wish


def refuse(checkpoint: Checkpoint, problems: Iterable[tuple[Tensor, str | None]]) -> None:
    """InvalidArgumentError with all that does not fit, a line each, when anything does not."""
    lines = [f"  '{tensor.name}': {problem}" for tensor, problem in problems if problem]
    if lines:
        shown: Sequence[str] = lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], f"  and {len(lines) - _MOST_LINES} more"]
        raise InvalidArgumentError(f"{len(lines)} {'tensor' if len(lines) == 1 else 'tensors'} cannot be loaded so", path=checkpoint.path, context=shown)
