"""Weights of Keras 3 models: saved in shards and loaded, all or nothing, in bounded memory, in files that plain Keras reads too.

    import shardwright.keras

    shardwright.keras.save_weights(model, "model.weights.json", max_shard_size="2GB")
    shardwright.keras.load_weights(model, "model.weights.json")
"""
try:
    import keras as _keras
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(f"shardwright.keras needs {_missing.name}, which is not installed: pip install {_missing.name}",
                              name=_missing.name) from None

from .callback import CheckpointCallback
from .distribution import distribute_tensor, distribute_variable, relayout
from .loading import Loaded, load_weights
from .matching import MismatchError
from .models import load_model, save_model
from .saving import save_weights
from .states import Restored, restore
from .walk import Weight, weights_of

__all__ = ["CheckpointCallback", "Loaded", "MismatchError", "Restored", "Weight", "distribute_tensor", "distribute_variable", "load_model",
           "load_weights", "relayout", "restore", "save_model", "save_weights", "weights_of"]
