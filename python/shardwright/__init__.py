"""Checkpoints of models that do not fit in memory: opened lazily, saved, copied, converted, verified, in bounded memory.

    import shardwright

    with shardwright.open("llama/") as checkpoint:
        head = checkpoint["lm_head.weight"][:16]          # reads these rows only
        arrays = checkpoint.load(["model.norm.weight"])
    shardwright.save("out/", {"a": array}, max_shard_size="2GB")
    shardwright.copy("llama/", "llama.weights.json", dtype="bf16")
"""
from ._core import version as __version__
from .arrays import Producer, Sharded
from .checkpoint import Checkpoint, Tensor, open
from .downloads import ShardFiles, files_for
from .errors import (AbortedError, AlreadyExistsError, CorruptError, Error, InternalError, InvalidArgumentError, IoError, NotFoundError,
                     PermissionDeniedError, ResourceExhaustedError, TensorNotFoundError, UnavailableError, UnsupportedError)
from .jobs import (Difference, Format, Info, Reindexed, TensorHash, Verification, copy, diff, formats, hash, info, reindex, verify)
from .manager import CheckpointManager, StepInfo
from .memory import empty
from .progress import Progress
from .ranks import Ranks, get_process_count, get_process_index, join_ranks, leave_ranks
from .saving import CopySummary, Tensors, save

__all__ = [
    "AbortedError", "AlreadyExistsError", "Checkpoint", "CheckpointManager", "CopySummary", "CorruptError", "Difference", "Error", "Format", "Info",
    "InternalError", "InvalidArgumentError", "IoError", "NotFoundError", "PermissionDeniedError", "Producer", "Progress", "Ranks", "Reindexed",
    "ResourceExhaustedError", "ShardFiles", "Sharded", "StepInfo", "Tensor", "TensorHash", "TensorNotFoundError", "Tensors", "UnavailableError", "UnsupportedError",
    "Verification", "__version__", "copy", "diff", "empty", "files_for", "formats", "get_process_count", "get_process_index", "hash", "info",
    "join_ranks", "leave_ranks", "open", "reindex", "save", "verify",
]
