"""Checkpoints of a model in training, with the arguments of Keras's OrbaxCheckpoint."""
from __future__ import annotations

import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Union

import keras
import numpy as np

from ..errors import AlreadyExistsError, InvalidArgumentError, UnsupportedError
from ..manager import CheckpointManager, StepInfo, root_of
from .models import assets_of, config_of
from .states import ASSETS, CONFIG, FIT, ITEM, RANDOM, Restored, restore_step, state_tree
from .walk import require_built

Metadata = Union[Mapping[str, Any], Callable[[int, Mapping[str, float]], Mapping[str, Any]]]
_OURS = ("item", "background", "best_metric", "best_mode", "keep_best", "keep_last", "max_to_keep", "lower")


class CheckpointCallback(keras.callbacks.Callback):
    """Saves a model while fit() trains it: weights, random states, optimizer, metrics and configuration, in the background, as steps of one directory.

        checkpoints = shardwright.keras.CheckpointCallback("run/", monitor="val_accuracy", max_to_keep=3)
        model.fit(data, epochs=20, initial_epoch=checkpoints.resume(model), callbacks=[checkpoints])

    The steps are those of shardwright.CheckpointManager, laid out as Keras's OrbaxCheckpoint does: its load_weights() takes the directory, and
    keras.saving.load_model() too, but for a Sequential, which it gives back untrained (shardwright.keras.load_model() does not); of the format "orbax"
    alone. A run that OrbaxCheckpoint has begun is gone on with. On JAX, under DataParallel and ModelParallel too, and on PyTorch.
    """

    def __init__(self, directory: str | os.PathLike[str], monitor: str = "val_loss", verbose: int = 0, save_best_only: bool = False, mode: str = "auto",
                 save_freq: int | str = "epoch", initial_value_threshold: float | None = None, max_to_keep: int | None = 1,
                 save_on_background: bool = True, save_weights_only: bool = False, *, metadata: Metadata | None = None, iterator_state: Any = None,
                 lower: str = "refuse", **options: Any):
        """directory: of the run; made by the first save. A step is called by its epoch (from 0), or by the number of batches seen.
        monitor: a metric in the logs. verbose: 1: a line for each save. save_best_only: saves when the monitored metric is better than in all steps
            that are there; a metric that is missing is warned of, and one that is no number is never better.
        mode: "min", "max" or "auto": by what Keras knows of the metric.
        save_freq: "epoch", or a number of batches; a step saved after the last batch of an epoch goes on with the next one. initial_value_threshold: what the first must be better than.
        max_to_keep: the newest n (by default one) stay (with save_best_only the best n), and in any case the best by `monitor`; None: all.
        save_on_background: else a save holds the training up until it is done. save_weights_only: no optimizer, metrics and configuration.
        metadata: to be kept with each step: JSON, or a function of (epoch, logs) that makes it.
        iterator_state: a function that gives the state of the data iterator, as JSON, text or bytes; or an object with get_state() and, to be restored
            by resume(), set_state().
        lower: as in CheckpointManager: "branch" sets later steps of the directory aside when training goes on from an earlier one.
        options: further ones of CheckpointManager: keep_every, keep_interval, keep_if, format, hold, staging, memory, threads, prefix, ...

        A failure in the background is raised by the next save, or at the end of fit(). Raises InvalidArgumentError for what cannot be meant, and
        UnsupportedError for a backend of Keras other than JAX and PyTorch.
        """
        super().__init__()
        _check_backend()
        _check(save_freq == "epoch" or (_is_int(save_freq) and save_freq >= 1), "save_freq", save_freq, "'epoch', or a number of batches from 1 on")
        _check(mode in ("auto", "min", "max"), "mode", mode, "'auto', 'min' or 'max'")
        _check(isinstance(monitor, str) and bool(monitor), "monitor", monitor, "the name of a metric")
        _check(verbose in (0, 1), "verbose", verbose, "0 or 1")
        for name, flag in (("save_best_only", save_best_only), ("save_on_background", save_on_background), ("save_weights_only", save_weights_only)):
            _check(isinstance(flag, bool), name, flag, "True or False")
        threshold = initial_value_threshold
        number = isinstance(threshold, (int, float, np.number)) and not isinstance(threshold, bool)
        _check(threshold is None or (number and not math.isnan(float(threshold))), "initial_value_threshold", threshold, "a number, or None")
        _check(max_to_keep is None or (_is_int(max_to_keep) and max_to_keep >= 1), "max_to_keep", max_to_keep, "1 or more, or None for all")
        _check(metadata is None or callable(metadata) or isinstance(metadata, Mapping), "metadata", metadata, "a dict, or a function of (epoch, logs)")
        _check(iterator_state is None or callable(iterator_state) or hasattr(iterator_state, "get_state"), "iterator_state", iterator_state,
               "a function, or an object with get_state()")
        for name in _OURS:
            _check(name not in options, name, options.get(name), "nothing: the arguments of the callback say it")
        self.directory, self.monitor, self.verbose, self.mode = root_of(directory), monitor, verbose, mode
        self.save_best_only, self.save_freq, self.max_to_keep = save_best_only, save_freq, max_to_keep
        self.save_on_background, self.save_weights_only = save_on_background, save_weights_only
        self.metadata, self.iterator_state, self.lower, self.options = metadata, iterator_state, lower, options
        self.best: float | None = None if threshold is None else float(threshold)
        self.restored: Restored | None = None
        self._manager: CheckpointManager | None = None
        self._config: str | None = None
        self._last_epoch: int | None = None  # the number of the last one that the model was trained for, as steps count
        self._shift = self._epoch = self._batches = self._since_save = 0
        self._last_batch: int | None = None
        self._saved: tuple[int, int, Any] | None = None  # the last step in this epoch: its number, the epoch that comes after it, the logs
        self._better = False  # of that step
        self._monitored = False  # whether a metric that is missing was said, or has been there
        self._random: Any = None  # of PyTorch, for the first epoch
        self._fresh = False  # whether fit() has begun, and nothing of it was trained
        self._open(None).close()  # options that cannot be meant are refused here

    # ---- going on

    def resume(self, model: Any, step: int | str | None = None, **options: Any) -> int:
        """Restores a step into the model: the latest that is complete, a number, or "best" by `monitor`. Returns the initial_epoch for fit(): 0 when the
        directory has no step yet. options: of shardwright.keras.restore(). What was restored is then in `restored`. With PyTorch, fit() then begins
        with the random state of the process that was saved, which Dropout of Keras draws from on the CPU."""
        require_built(model, "its state is restored")
        with self._open(self._mode_of(model, step == "best")) as manager:
            chosen = manager.agreed(step)  # type: ignore[arg-type]
            if chosen is None and manager.latest() is None:
                return 0
            info = manager.info(chosen)
            iterator = manager.iterator_state(info.step) if hasattr(self.iterator_state, "set_state") else None  # of as many processes, or nothing is changed
            self.restored = restore_step(model, manager, info, **options)
            if keras.backend.backend() == "torch":
                self._random = _random_state_of(manager, info)
            if iterator is not None:
                self.iterator_state.set_state(iterator)
        if self.save_freq == "epoch":
            self._last_epoch = info.step
        elif self.restored.batches is not None:
            self._batches = self.restored.batches
        if self.restored.initial_epoch is None:  # of Keras's own callback
            return info.step + 1 if self.save_freq == "epoch" else 0
        return self.restored.initial_epoch

    def wait_until_finished(self) -> None:
        """Returns when nothing is being saved; raises what made a save fail."""
        if self._manager is not None:
            self._manager.wait()

    # ---- what fit() calls

    def on_train_begin(self, logs: Any = None) -> None:
        _check_backend()
        model = self.model
        self._mode = self._mode_of(model, self.save_best_only)
        if self._mode is None:
            warnings.warn(f"no step is kept as the best: whether '{self.monitor}' should be large or small cannot be told; mode='min' or 'max' says it",
                          stacklevel=3)
        state_tree(model, self.save_weights_only)  # what cannot be saved is said before anything is trained
        self._config, self._last_batch, self._saved, self._since_save, self._fresh = None, None, None, 0, True
        optimizer = getattr(model, "optimizer", None)
        self._batches = max(self._batches, 0 if optimizer is None else int(optimizer.iterations))
        self._manager = self._open(self._mode)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._fresh:
            self._fresh = False
            if self._random is not None:  # now: fit() itself has drawn from it, before its first epoch
                _torch().set_rng_state(self._random)
                self._random = None
            # A second fit() counts its epochs from 0 again; steps go on.
            self._shift = 0 if self._last_epoch is None else max(0, self._last_epoch + 1 - epoch)
            self._look_around(epoch + self._shift if self.save_freq == "epoch" else self._batches + 1)
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.save_freq == "epoch":
            return
        # With steps_per_execution it is called for the last batch of several.
        new = batch + 1 if self._last_batch is None or batch <= self._last_batch else batch - self._last_batch
        self._last_batch = batch
        self._batches += new
        self._since_save += new
        if self._since_save >= self.save_freq:
            self._since_save = 0
            last = batch + 1 == (self.params or {}).get("steps")
            self._saved = self._batches, self._epoch + last, logs
            self._save(*self._saved)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._last_epoch = epoch + self._shift
        saved, self._saved = self._saved, None
        if saved is not None and saved[:2] == (self._batches, epoch):  # the epoch's last batch, which nobody could know
            self._save(self._batches, epoch + 1, saved[2], force=True)
        if self.save_freq == "epoch":
            self._save(self._last_epoch, self._last_epoch + 1, logs)

    def on_train_end(self, logs: Any = None) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    # ---- saving

    def _save(self, step: int, next_epoch: int, logs: Any, force: bool = False) -> None:
        """force: the step is there, unless it is none of the best."""
        logs = {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
        better = self._better = self._agreed(self._is_better(step, logs)) if not force else self._better
        if self.save_best_only and not better:
            return
        assert self._manager is not None
        self._manager.save(step, state_tree(self.model, self.save_weights_only), metrics=logs, metadata=self._metadata(next_epoch, logs),
                           iterator_state=self._iterator_state(), items=self._items(), force=force)
        if self.verbose and not force and self._manager.position()[0] == 0:
            print(f"{self.directory}: saves step {step}{f', {self.monitor} {logs[self.monitor]:.5g}' if self.monitor in logs else ''}")

    def _agreed(self, better: bool) -> bool:
        """Whether a step is saved all processes must answer alike; what each finds in its logs may differ."""
        assert self._manager is not None
        ranks = self._manager.ranks
        return better if ranks is None or not self.save_best_only else ranks.all_gather(b"%d" % better)[0] == b"1"

    def _is_better(self, step: int, logs: Mapping[str, float]) -> bool:
        value = logs.get(self.monitor)
        if value is None:
            if self.save_best_only:
                warnings.warn(f"step {step} is not saved: the logs have no '{self.monitor}' to know the best by, only {', '.join(logs) or 'nothing'}",
                              stacklevel=4)
            elif not self._monitored and self.monitor != "val_loss":  # the default, which training without validation has not
                self._monitored = True
                warnings.warn(f"step {step} is none of the best: the logs have no '{self.monitor}', only {', '.join(logs) or 'nothing'}", stacklevel=4)
            return False
        self._monitored = True
        if math.isnan(value) or not (self.best is None or (value > self.best if self._mode == "max" else value < self.best)):
            return False
        self.best = value
        return True

    def _metadata(self, next_epoch: int, logs: Mapping[str, float]) -> dict[str, Any]:
        given = self.metadata(self._epoch, logs) if callable(self.metadata) else self.metadata or {}
        if FIT in given:
            raise InvalidArgumentError(f"metadata of a step has '{FIT}' already", found=repr(given[FIT]), expected="another name")
        return {**given, FIT: {"next_epoch": next_epoch, "batches": self._batches if self.save_freq != "epoch" else None}}

    def _iterator_state(self) -> Any:
        if self.iterator_state is None:
            return None
        return self.iterator_state.get_state() if hasattr(self.iterator_state, "get_state") else self.iterator_state()

    def _items(self) -> dict[str, Any]:
        if self.save_weights_only:
            return {}
        if self._config is None:
            try:
                self._config = json.dumps(config_of(self._model))
            except Exception as error:  # whatever a get_config() of the user's raises
                warnings.warn(f"the steps have no configuration, and can be restored only into a model that is there: {type(error).__name__}: {error}",
                              stacklevel=5)
                self._config = ""
        items: dict[str, Any] = {CONFIG: {"config": self._config}} if self._config else {}
        if keras.backend.backend() == "torch":  # its Dropout draws from the generator of the process
            assert self._manager is not None
            items[_random_item(self._manager)] = {"torch": _torch().get_rng_state().numpy()}
        assets = _assets(self._model)
        return {**items, ASSETS: assets} if assets else items

    # ---- the directory

    def _open(self, mode: str | None) -> CheckpointManager:
        """mode: None when it cannot be told, and then nothing is kept as the best."""
        rules: dict[str, Any] = {} if mode is None else {"best_metric": self.monitor, "best_mode": mode}
        if self.max_to_keep is not None:
            rules["keep_best" if self.save_best_only and mode is not None else "keep_last"] = self.max_to_keep
            if "keep_best" in rules:
                rules["keep_without_metric"] = False
        return CheckpointManager(self.directory, item=ITEM, background=self.save_on_background, lower=self.lower,  # type: ignore[arg-type]
                                 **{**rules, **self.options})

    def _mode_of(self, model: Any, needed: bool) -> str | None:
        """As Keras tells it: from the metric. InvalidArgumentError where it is needed and cannot be told."""
        if self.mode != "auto":
            return self.mode
        name = self.monitor.removeprefix("val_")
        if name == "loss":
            return "min"
        for metric in _metrics_of(model):
            if metric.name == name and getattr(metric, "_direction", None) is not None:
                return "max" if metric._direction == "up" else "min"
        if needed:
            raise InvalidArgumentError(f"whether '{self.monitor}' should be large or small cannot be told from the metric", found="mode='auto'",
                                       expected="mode='min' or mode='max'", hint="metrics of the model: " + ", ".join(m.name for m in _metrics_of(model)))
        return None

    def _look_around(self, first: int) -> None:
        """Before anything is trained: that steps from `first` on can be saved. The best of those before it is what is to be beaten."""
        assert self._manager is not None
        steps = [info for info in self._manager.steps() if info.complete]
        if steps and steps[-1].step >= first and self.lower != "branch":
            raise AlreadyExistsError(f"the directory has later steps than {first}, with which this training would begin", path=self.directory,
                                     found=f"step {steps[-1].step}", hint="resume(model) goes on after the latest; lower='branch' sets later steps aside; "
                                     "or another directory for another run")
        self.best = self._best_of([info for info in steps if info.step < first])

    def _best_of(self, steps: list[StepInfo]) -> float | None:
        values = [info.metrics[self.monitor] for info in steps if not math.isnan(info.metrics.get(self.monitor, math.nan))]
        values += [] if self.best is None else [self.best]
        return (max(values) if self._mode == "max" else min(values)) if values else None


def _check(right: bool, name: str, found: Any, expected: str) -> None:
    if not right:
        raise InvalidArgumentError(f"{name} cannot be meant", found=repr(found), expected=expected)


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_))


def _check_backend() -> None:
    backend = keras.backend.backend()
    if backend not in ("jax", "torch"):
        raise UnsupportedError(f"checkpoints of a training are not saved from Keras with {backend}", expected="the JAX or the PyTorch backend",
                               hint="shardwright.keras.save_weights() saves weights with any")
    if backend == "torch" and keras.distribution.distribution() is not None:
        raise UnsupportedError("with PyTorch a model that Keras has distributed is not saved", expected="the JAX backend, or no distribution",
                               hint="shardwright.torch saves models that PyTorch has distributed")


def _torch() -> Any:
    import torch
    return torch


def _random_item(manager: CheckpointManager) -> str:
    """Every process has a random state of its own."""
    index, count = manager.position()
    return RANDOM if count == 1 else f"{RANDOM}_{index}_of_{count}"


def _random_state_of(manager: CheckpointManager, info: StepInfo) -> Any:
    name, items = _random_item(manager), os.listdir(manager.path(info.step))
    if name in items:
        return _torch().from_numpy(manager.restore(info.step, item=name)["torch"])
    if any(item.startswith(RANDOM) for item in items):
        warnings.warn(f"step {info.step} has the random states of another number of processes: they are not restored", stacklevel=3)
    return None


def _metrics_of(model: Any) -> list[Any]:
    found: list[Any] = []
    for metric in getattr(model, "metrics", []):
        found += getattr(metric, "metrics", None) or [metric]  # those given to compile() lie in one
    return found


def _assets(model: Any) -> dict[str, Any]:
    """Files that layers save beside their variables (vocabularies), as bytes by the parts of their paths."""
    tree: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in assets_of(model, folder):
            *parents, last = name.split("/")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = np.fromfile(path, np.uint8)
    return tree
