/// Cutting an array into slabs that are contiguous in its C order.
#pragma once

#include <cstdint>
#include <span>

#include "shardwright/base/result.h"

namespace shardwright {

/// Elements [first, first + count) of an array in its C order.
struct Range {
  uint64_t first = 0, count = 0;
};

/// Slabs of one array: outer x ceil(extent / step) parts, in C order, each contiguous: `step` indices of the cut dimension (fewer in the
/// last), times `inner` elements behind it, for each index of the dimensions before it.
struct Cut {
  uint64_t outer = 1, extent = 1, inner = 1, step = 1;
  uint64_t slabs() const { return (extent + step - 1) / step; }
  uint64_t parts() const { return outer * slabs(); }
  Range range(uint64_t part) const;  ///< REQUIRES: part < parts()
  uint64_t largest() const { return (step < extent ? step : extent) * inner; }
};

/// The coarsest cut whose slabs hold at most `most` elements and start at multiples of `block` elements; one part for an array without
/// elements. When dimension 0 is cut, step is a multiple of `align` where that fits. Where the block forbids smaller slabs, they are
/// larger than `most`: the caller looks at largest().
Cut cut_slabs(std::span<const int64_t> extents, uint64_t most, uint64_t block, uint64_t align = 1);

}  // namespace shardwright
