/// PyTorch's DTensor placements: one per mesh dimension.
#pragma once

#include <string>
#include <string_view>

#include "shardwright/layout/tensor_layout.h"

namespace shardwright {

/// "(Shard(dim=0), Replicate())" as Python prints them. Axes of one dimension in another order than the mesh's become
/// _StridedShard(dim=0, sf=4): sf is the product of the more major axes that come later in the mesh.
/// REQUIRES: check_layout(mesh, layout).
std::string placements_text(const DeviceMesh& mesh, const TensorLayout& layout);

/// Reads that, in () or [], and the short forms: Shard(0), S(0), R, _StridedShard(0, split_factor=4), _S(0, 4). The layout chunks unevenly, as
/// torch does. Errors: kInvalidArgument for other text, another number of placements than axes, dimensions over 1023, and split factors
/// that no order of axes has; kUnsupported for partial sums.
Result<TensorLayout> parse_placements(std::string_view text, const DeviceMesh& mesh);

}  // namespace shardwright
