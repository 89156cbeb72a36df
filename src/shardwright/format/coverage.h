/// Do boxes tile a tensor?
#pragma once

#include <span>
#include <vector>

#include "shardwright/base/result.h"
#include "shardwright/tensor/box.h"

namespace shardwright {

/// Ok when the boxes, each inside `shape`, are pairwise disjoint or equal (replicas) and together the whole of it. A tensor without
/// elements needs one (empty) box. Grids are recognised in O(n log n); other sets are swept along dimension 0, with a cap on the work.
/// Errors: kCorrupt naming two boxes that overlap in part, or how many elements are missing; kUnsupported when the cap is reached.
Status check_coverage(std::span<const int64_t> shape, std::vector<Box> boxes);

}  // namespace shardwright
