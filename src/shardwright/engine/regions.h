/// Which readings fill the boxes of a tensor that are wanted.
#pragma once

#include <span>
#include <vector>

#include "shardwright/engine/plan.h"

namespace shardwright {

/// Regions to be read for the kMemory or kCall pieces of target tensor `to`. Empty: one reading of the whole tensor.
/// Where the source is one stretch of a file, and every piece too, one region a piece, so that each is read straight into its place. Where
/// the pieces are together the tensor, it is read as a whole. Else pieces that are neighbours, with gaps of at most kGapBytes, share a region.
/// Post: every piece lies in one region, and regions share no element of a piece. REQUIRES: pieces are disjoint, none is empty.
std::vector<Region> regions_of(const Catalog& from, TensorId source, const Catalog& to, TensorId target);

}  // namespace shardwright
