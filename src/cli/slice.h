/// NumPy's basic slices: "0:4,:", "-1", "::2", "...".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"

namespace shardwright::cli {

/// Elements start, start + step, ... of one dimension; all lie within it. dropped: a single index, the dimension is not in the result.
struct Range {
  int64_t start = 0, step = 1, count = 0;
  bool dropped = false;
  int64_t at(int64_t i) const { return start + i * step; }
};

/// One range per dimension of `shape`. Bounds of slices are clipped, as in Python; a single index outside is an error.
/// "" takes everything. Errors: kInvalidArgument.
Result<std::vector<Range>> parse_slice(std::string_view text, std::span<const int64_t> shape);

}  // namespace shardwright::cli
