/// The loops over two strided arrays at once, shared by for_each_run() and copy_strided().
#pragma once

#include <cstdint>
#include <vector>

#include "shardwright/tensor/box.h"

namespace shardwright::detail {

/// One loop: `extent` steps of `a` elements in the first array and `b` in the second.
struct LoopDim {
  int64_t extent, a, b;
};

/// The part common to two arrays as nested loops, outermost first; dimensions of extent 1 are left out.
struct LoopNest {
  std::vector<LoopDim> dims;
  int64_t offset_a = 0, offset_b = 0;  ///< of the first element of the part, in elements
};

/// REQUIRES: part lies within both boxes and is not empty.
inline LoopNest loop_nest(const Box& part, const Strided& a, const Strided& b) {
  LoopNest nest;
  nest.offset_a = a.offset_of(part.start);
  nest.offset_b = b.offset_of(part.start);
  nest.dims.reserve(part.rank());
  for (size_t d = 0; d < part.rank(); ++d) {
    if (part.extent[d] != 1) nest.dims.push_back({part.extent[d], a.strides[d], b.strides[d]});
  }
  return nest;
}

/// Calls body(offset_a, offset_b) for every step of the first `depth` loops, in order; once when depth is 0.
template <class Body>
void for_each_step(const LoopNest& nest, size_t depth, Body&& body) {
  std::vector<int64_t> index(depth, 0);
  int64_t offset_a = nest.offset_a, offset_b = nest.offset_b;
  for (;;) {
    body(offset_a, offset_b);
    size_t d = depth;
    for (;;) {
      if (d == 0) return;
      const LoopDim& dim = nest.dims[--d];
      offset_a += dim.a;
      offset_b += dim.b;
      if (++index[d] < dim.extent) break;
      offset_a -= dim.a * dim.extent;
      offset_b -= dim.b * dim.extent;
      index[d] = 0;
    }
  }
}

}  // namespace shardwright::detail
