"""Plans of tensor parallelism, as transformers' models have them, as placements."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from ..checkpoint import Tensor
from ..errors import InvalidArgumentError

_WHOLE = ("replicate", "replicated_with_grad_allreduce", "sequence_parallel", "all_reduce", "moe_tp_experts", "moe_identity_expert", "mla_kv_a_proj",
          "local_params")


def tensor_parallel(plan: Mapping[str, str], *, axis: str | None = None, mesh: Any = None) -> Callable[[Tensor], Sequence[Any]]:
    """Placements, for load(), of a plan such as model.tp_plan of transformers: module or parameter, layer numbers as "*" -> "colwise",
    "rowwise", ... What the plan does not name is whole on every rank.

    axis, mesh: of a mesh of several dimensions, which of them the plan is about; the others replicate.
    The styles of one weight in several pieces (packed_colwise: gate and up in one matrix) give each rank its part of every piece. InvalidArgumentError
    for styles that are not known.
    """
    at, dimensions = 0, 1
    if mesh is not None:
        dimensions = mesh.ndim
        if dimensions > 1 and (axis is None or axis not in (mesh.mesh_dim_names or ())):
            raise InvalidArgumentError("which dimension of the mesh is the plan about?", found=repr(axis), expected=f"one of {mesh.mesh_dim_names}")
        at = mesh.mesh_dim_names.index(axis) if dimensions > 1 else 0
    for pattern, style in plan.items():
        _placement(style, 2, pattern)

    def placements(tensor: Tensor) -> Sequence[Any]:
        name = re.sub(r"\d+", "*", tensor.name)
        owner = name.rpartition(".")[0]
        pattern = next((key for key in (name, owner) if key in plan), None)
        found = Replicate() if pattern is None else _placement(plan[pattern], tensor.ndim, pattern)
        return [found if d == at else Replicate() for d in range(dimensions)]
    return placements


def _placement(style: str, rank: int, pattern: str) -> Any:
    """Of a weight (two dimensions, or three for experts), or a bias (one)."""
    if rank == 0 or style in _WHOLE:
        return Replicate()
    if style in ("colwise", "colwise_rep", "colwise_gather_output"):
        return Shard(max(0, rank - 2))
    if style in ("rowwise", "rowwise_rep", "rowwise_split_input"):
        return Replicate() if rank == 1 else Shard(rank - 1)
    if style == "embedding_rowwise":
        return Shard(0)
    if style == "embedding_colwise":
        return Shard(1) if rank > 1 else Replicate()
    if style == "packed_colwise":
        return Shard(0) if rank == 1 else _StridedShard(rank - 2, split_factor=2)
    if style == "packed_rowwise":
        return Replicate() if rank == 1 else _StridedShard(rank - 1, split_factor=2)
    if style == "grouped_gemm":
        return Shard(0)
    raise InvalidArgumentError(f"no such style of tensor parallelism: '{style}'", tensor=pattern,
                               hint="give placements of your own for it: a function of the tensor that calls this one for the others")
