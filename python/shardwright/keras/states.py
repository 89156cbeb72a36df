"""The state of a model by the paths of its variables, as Keras's OrbaxCheckpoint has it: taken from a model, and put back into one."""
from __future__ import annotations

import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras

from ..checkpoint import Checkpoint
from ..errors import CorruptError, Error, InvalidArgumentError, NotFoundError
from ..manager import CheckpointManager, StepInfo, root_of
from ..memory import DEFAULT_MEMORY, size
from ..progress import Progress, reporting
from ..tree import Note
from .backends import dtype_of
from .matching import MismatchError, described, narrows, near_text, unfit
from .reading import Reading, Want
from .report import Report, shown
from .stored import Located
from .walk import require_built

ITEM, CONFIG, ASSETS, RANDOM = "pytree", "model_config", "assets", "random"
_TRAINABLE, _FIXED, _OPTIMIZER, _METRICS = "trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables"
# In the metadata of a step: where in fit() it was saved.
FIT = "fit"


def variables_of(model: Any) -> dict[str, list[Any]]:
    """By the four groups of the tree. A model that is not compiled has no optimizer, and none of its variables."""
    optimizer = getattr(model, "optimizer", None)
    return {_TRAINABLE: list(model.trainable_variables), _FIXED: list(model.non_trainable_variables),
            _OPTIMIZER: [] if optimizer is None else list(optimizer.variables), _METRICS: list(getattr(model, "metrics_variables", []))}


def state_tree(model: Any, weights_only: bool = False) -> dict[str, Any]:
    """Values of the backend, as they lie. InvalidArgumentError for two variables of one path: only one could be stored."""
    tree: dict[str, Any] = {}
    for group, variables in variables_of(model).items():
        if weights_only and group not in (_TRAINABLE, _FIXED):
            continue
        tree[group] = root = {}
        for variable in variables:
            *parents, name = variable.path.split("/")
            node: Any = root
            for parent in parents:
                node = node.setdefault(parent, {}) if isinstance(node, dict) else None
            if not isinstance(node, dict) or name in node:
                raise InvalidArgumentError("two variables of the model have one path", tensor=variable.path,
                                           hint="give the layers, and whatever else has variables, names of their own")
            node[name] = variable.value.detach() if keras.backend.backend() == "torch" else variable.value
    return tree


# ---- which step

@dataclass
class Restored:
    """step: its number. weights: how many variables were filled. skipped: what was not, one line each. initial_epoch: what fit() is to be given to go
    on from there; None when the step does not say. metrics, metadata: those of the step."""

    step: int
    weights: int
    skipped: list[str]
    initial_epoch: int | None
    batches: int | None
    metrics: dict[str, float] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@contextmanager
def step_of(path: str | os.PathLike[str], step: int | str | None, **options: Any) -> Iterator[tuple[CheckpointManager, StepInfo]]:
    """path: of a run, or of one of its steps. step: a number, "latest", "best:<metric>" or "best:<metric>:max"; None: the latest."""
    root = root_of(path)
    if is_step(root):
        if step is not None:
            raise InvalidArgumentError("the path is that of a step, which has no further steps", path=root, found=f"step={step!r}")
        root, name = os.path.split(root)
        found = re.fullmatch(r"(?:(.+)_)?(\d+)", name)
        if found is None:
            raise InvalidArgumentError("a step's directory is called by its number", path=os.path.join(root, name))
        step = int(found[2])
        options |= {"prefix": found[1] or "", "digits": len(found[2]) if found[2].startswith("0") and len(found[2]) > 1 else 0}
    if isinstance(step, str) and step.startswith("best:"):
        metric, _, mode = step.removeprefix("best:").partition(":")
        options |= {"best_metric": metric, "best_mode": mode or "min"}
        step = "best"
    if not os.path.isdir(root):
        raise NotFoundError("no such directory", path=root)
    with CheckpointManager(root, item=ITEM, **options) as manager:
        yield manager, manager.info(manager.agreed(step))  # type: ignore[arg-type]


def is_step(path: str) -> bool:
    return os.path.isdir(os.path.join(path, ITEM))


def is_run(path: str) -> bool:
    """Whether it is a step, or a directory of steps."""
    if is_step(path):
        return True
    return os.path.isdir(path) and any(is_step(os.path.join(path, name)) for name in os.listdir(path) if name[-1:].isdigit())


# ---- putting it back

def restore(model: Any, path: str | os.PathLike[str], step: int | str | None = None, *, optimizer: bool | None = None, skip_mismatch: bool = False,
            verify: bool = False, free_first: bool = False, memory: int | str = DEFAULT_MEMORY, threads: int = 0,
            progress: Progress | str = "auto", **options: Any) -> Restored:
    """Puts a step of a run that CheckpointCallback or Keras's OrbaxCheckpoint saved into a model: weights, random states, optimizer and metrics, each
    value straight to where it belongs, whatever devices it was saved from.

    path: the run's directory, or that of one step. step: a number; "best:val_loss", "best:accuracy:max"; None: the latest that is complete.
    optimizer: True: its variables must be there. False: it is left as it is. None: restored if the step has any, with a warning if not.
    skip_mismatch: restores what fits, and warns of the rest. verify: holds every byte against the checksums of the step first.
    Everything else as in load_weights(); options: as CheckpointManager's (prefix, digits).

    Variables are found by their paths; what differs in front (names of a Sequential, of a second optimizer) is no difference. Metrics that the model
    has not built yet have no variables: they are left out, and named in `skipped`.
    Raises MismatchError, which names all that does not fit, before anything is changed; NotFoundError, CorruptError.
    """
    require_built(model, "its state is restored")
    with step_of(path, step, **options) as (manager, info):
        return restore_step(model, manager, info, optimizer, skip_mismatch, verify, free_first, memory, threads, progress)


def restore_step(model: Any, manager: CheckpointManager, info: StepInfo, optimizer: bool | None = None, skip_mismatch: bool = False,
                 verify: bool = False, free_first: bool = False, memory: int | str = DEFAULT_MEMORY, threads: int = 0,
                 progress: Progress | str = "auto") -> Restored:
    begun = time.perf_counter()
    with manager.opened(info.step, verify=verify) as (checkpoint, noted):
        found = _Matching(model, _stored(checkpoint, noted.notes), optimizer)
        if found.problems and not skip_mismatch:
            raise MismatchError(f"{len(found.problems)} variables of step {info.step} and of the model do not fit each other; nothing was changed",
                                problems=found.problems, path=checkpoint.path, hint=found.hint)
        _warn(checkpoint.path, found, skip_mismatch)
        total = sum(want.located.tensor.nbytes for want in found.wants)
        with reporting(shown(progress, total)) as callback:
            reading = Reading(free_first, size(memory, "memory"), threads, Report(callback, "read", total))
            reading.plan(found.wants)
            try:
                for want in found.wants:
                    want.variable.assign(reading.take(want))
            except Error as error:
                error.context = (*error.context, "while values were read: the model holds some of the new ones")
                raise
    fit = info.metadata.get(FIT)
    fit = fit if isinstance(fit, dict) else {}
    return Restored(info.step, len(found.wants), found.problems + found.skipped, fit.get("next_epoch"), fit.get("batches"), info.metrics, info.metadata,
                    time.perf_counter() - begun)


def _stored(checkpoint: Checkpoint, notes: list[Note]) -> dict[str, dict[str, Located]]:
    """What the step has, by group and path."""
    out: dict[str, dict[str, Located]] = {group: {} for group in (_TRAINABLE, _FIXED, _OPTIMIZER, _METRICS)}
    for note in notes:
        group, *parts = (key for key, _ in note.path)
        if group not in out:
            raise CorruptError("the step is no state of a Keras model", path=checkpoint.path, found=f"'{group}'", expected=", ".join(out))
        if note.has_array:
            out[group]["/".join(parts)] = Located(checkpoint, checkpoint[note.name])
    return out


def _warn(path: str, found: _Matching, skip_mismatch: bool) -> None:
    lines = [("left out, as they do not fit the model:", found.problems), ("lose precision in the model's dtypes:", found.narrowed)]
    for text, names in lines:
        if names:
            warnings.warn("\n  ".join([f"{path}: {text}", *names[:20], *([f"and {len(names) - 20} more"] if len(names) > 20 else [])]), stacklevel=4)
    if found.without_optimizer:
        warnings.warn(f"{path}: has no variables of an optimizer; the model's optimizer keeps its own", stacklevel=4)


class _Matching:
    """What of a step goes into which variable: decided from paths, shapes and dtypes alone. wants; problems, narrowed, skipped: one line each."""

    def __init__(self, model: Any, stored: Mapping[str, Mapping[str, Located]], optimizer: bool | None):
        self.wants: list[Want] = []
        self.problems: list[str] = []
        self.narrowed: list[str] = []
        self.skipped: list[str] = []
        self.without_optimizer = False
        own = variables_of(model)
        # A layer that was frozen or set free since has its variables in the other group.
        weights = {variable.path: variable for variable in own[_TRAINABLE] + own[_FIXED]}
        there = {**stored[_TRAINABLE], **stored[_FIXED]}
        same = {**_seeds_paired(weights, there), **paired(weights, there, f"{getattr(model, 'name', '')}/")}
        self.take(weights, there, same)
        self.take_optimizer(model, stored[_OPTIMIZER], same, optimizer)
        self.take_metrics({variable.path: variable for variable in own[_METRICS]}, stored[_METRICS])

    def take(self, variables: Mapping[str, Any], stored: Mapping[str, Located], same: Mapping[str, str]) -> None:
        left = [path for path in stored if path not in set(same.values())]
        alone = [path for path in variables if path not in same]
        for path, variable in variables.items():
            if path not in same:
                self.problems.append(f"'{path}' ({described(variable)}): not in the step" + near_text(path, left or list(stored)))
                continue
            located = stored[same[path]]
            problem = _unfit(located, variable)
            if problem:
                self.problems.append(f"'{path}': {problem}")
                continue
            if narrows(located.tensor.dtype, dtype_of(variable)) and tuple(variable.shape) != ():
                self.narrowed.append(path)
            self.wants.append(Want(located, variable, True))
        self.problems += [f"'{path}': in the step, not in the model" + near_text(path, alone) for path in left]

    def take_optimizer(self, model: Any, stored: Mapping[str, Located], weights: Mapping[str, str], wanted: bool | None) -> None:
        optimizer = getattr(model, "optimizer", None)
        if wanted is False or (optimizer is None and wanted is None):
            self.skipped += [f"'{path}': of the optimizer, which is left out" for path in stored]
            return
        if optimizer is None:
            self.problems.append("the model has no optimizer: it is not compiled")
            return
        if not stored and wanted is None:
            self.without_optimizer = True
            return
        if not optimizer.built and len(stored) > len(optimizer.variables):
            optimizer.build(model.trainable_variables)
        variables = {variable.path: variable for variable in optimizer.variables}
        same = _slots_paired(variables, stored, weights)
        if len(stored) == len(same) < len(variables) and int(keras.ops.convert_to_numpy(optimizer.iterations)) == 0:
            variables = {path: variables[path] for path in same}  # saved before its first step, when there were no slots
        self.take(variables, self.without_frozen(model, stored, same, weights), same)

    def without_frozen(self, model: Any, stored: Mapping[str, Located], same: Mapping[str, str], weights: Mapping[str, str]) -> dict[str, Located]:
        """Without the slots of weights that are there, but not trained any more."""
        trained, taken = {variable.path for variable in model.trainable_variables}, set(same.values())
        flat = {other.replace("/", "_") + "_": path for path, other in weights.items()}
        longest = sorted(flat, key=len, reverse=True)
        rest: dict[str, Located] = {}
        for path, located in stored.items():
            weight = flat.get(next((name for name in longest if path.partition("/")[2].startswith(name)), ""))
            if path in taken or weight is None or weight in trained:
                rest[path] = located
            else:
                self.skipped.append(f"'{path}': of '{weight}', which is not trained any more")
        return rest

    def take_metrics(self, variables: Mapping[str, Any], stored: Mapping[str, Located]) -> None:
        """They count within an epoch, and fit() begins them anew: what does not fit is no reason to stop."""
        for path in [*variables, *(path for path in stored if path not in variables)]:
            if path not in stored or path not in variables:
                self.skipped.append(f"'{path}': a metric that {'the step has not' if path in variables else 'the model has not built'}")
            elif problem := _unfit(stored[path], variables[path]):
                self.skipped.append(f"'{path}': {problem}")
            else:
                self.wants.append(Want(stored[path], variables[path], True))

    @property
    def hint(self) -> str:
        return "skip_mismatch=True restores the others; Keras numbers objects without a name over the whole process: names make them the same in each"


def _unfit(located: Located, variable: Any) -> str | None:
    """As Keras writes them with PyTorch, scalars are numbers of Python, which are 64 bits wide."""
    tensor = located.tensor
    if tensor.shape == () == tuple(variable.shape) and tensor.dtype.name in ("int64", "float64"):
        return None
    return unfit(located, variable)


def paired(wanted: Iterable[str], stored: Iterable[str], root: str) -> dict[str, str]:
    """Paths to what is stored under them; and, of the rest, to what differs in the model's own name in front: Keras calls a variable of a Sequential
    'model/layer/kernel' or 'layer/kernel', by how the model was made, and numbers models without a name. root: that name, with its '/'."""
    have = set(stored)
    same = {path: path for path in wanted if path in have}
    left, rest = [path for path in wanted if path not in same], have - set(same)
    longer: dict[str, list[str]] = {}
    for other in rest:
        longer.setdefault(other.partition("/")[2], []).append(other)
    for path in left:
        shorter = path.partition("/")[2]
        found = longer.get(path, []) + ([shorter] if shorter in rest else []) + (longer.get(shorter, []) if path.startswith(root) else [])
        if len(found) == 1:
            same[path] = found[0]
    claims = Counter(same.values())
    return {path: other for path, other in same.items() if claims[other] == 1}


def _seeds_paired(wanted: Iterable[str], stored: Iterable[str]) -> dict[str, str]:
    """States of seed generators, which Keras numbers over the whole process, in their order."""
    def ranked(paths: Iterable[str]) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for path in sorted(paths, key=lambda path: [int(part) for part in re.findall(r"seed_generator_(\d+)/", path)]):
            out.setdefault(re.sub(r"\bseed_generator(_\d+)?/", "seed_generator/", path), []).append(path)
        return out
    own, there = (ranked(path for path in paths if path.endswith("/seed_generator_state")) for paths in (wanted, stored))
    return {path: other for kind, paths in own.items() if len(paths) == len(there.get(kind, ())) for path, other in zip(paths, there[kind])}


def _slots_paired(variables: Iterable[str], stored: Iterable[str], weights: Mapping[str, str]) -> dict[str, str]:
    """Of an optimizer: slots are named by the path of the weight they are for, and all by the optimizer, whose name says only how many there were."""
    scopes = {path.partition("/")[0] for path in stored}, {path.partition("/")[0] for path in variables}
    scope = next(iter(scopes[0])) if len(scopes[0]) == len(scopes[1]) == 1 else None
    have, out = set(stored), {}
    flat = {path.replace("/", "_") + "_": other.replace("/", "_") + "_" for path, other in weights.items()}
    longest = sorted(flat, key=len, reverse=True)
    for path in variables:
        first, _, rest = path.partition("/")
        weight = next((name for name in longest if rest.startswith(name)), "")
        names = [rest, flat.get(weight, "") + rest[len(weight):]]
        found = [name for name in (f"{scope or first}/{name}" for name in names) if name in have]
        if found:
            out[path] = found[0]
    return out
