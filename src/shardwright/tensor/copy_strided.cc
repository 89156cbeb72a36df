#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "shardwright/tensor/box.h"
#include "shardwright/tensor/strided_loop.h"

namespace shardwright {
namespace {

using detail::for_each_step;
using detail::LoopDim;
using detail::LoopNest;

// Copying may visit elements in any order, so the loops are put in the order of the target's memory, turned to go up in it,
// and joined where two are one.
void reorder_for_target(LoopNest& nest) {
  for (LoopDim& dim : nest.dims) {
    if (dim.b >= 0) continue;
    nest.offset_a += dim.a * (dim.extent - 1);
    nest.offset_b += dim.b * (dim.extent - 1);
    dim.a = -dim.a;
    dim.b = -dim.b;
  }
  std::stable_sort(nest.dims.begin(), nest.dims.end(), [](const LoopDim& x, const LoopDim& y) { return x.b > y.b; });
  std::vector<LoopDim> joined;
  for (const LoopDim& dim : nest.dims) {
    if (!joined.empty() && joined.back().a == dim.a * dim.extent && joined.back().b == dim.b * dim.extent) {
      joined.back() = {joined.back().extent * dim.extent, dim.a, dim.b};
    } else {
      joined.push_back(dim);
    }
  }
  nest.dims = std::move(joined);
}

// Strides from elements to bytes; a short contiguous inner loop becomes one larger element, so that a transpose of pairs is
// tiled like any other. Returns the bytes of one element.
size_t scale_to_bytes(LoopNest& nest, size_t element_bytes) {
  const auto unit = static_cast<int64_t>(element_bytes);
  nest.offset_a *= unit;
  nest.offset_b *= unit;
  for (LoopDim& dim : nest.dims) {
    dim.a *= unit;
    dim.b *= unit;
  }
  if (nest.dims.size() < 2 || nest.dims.back().a != unit || nest.dims.back().b != unit) return element_bytes;
  const int64_t extent = nest.dims.back().extent;
  if (extent > 8 || (extent & (extent - 1)) != 0 || extent * unit > 16) return element_bytes;
  nest.dims.pop_back();
  return static_cast<size_t>(extent * unit);
}

template <size_t N>
struct Element {
  std::byte bytes[N];
};

template <size_t N>
void copy_line(const std::byte* from, std::byte* to, const LoopDim& line) {
  if (line.a == N && line.b == N) {
    std::memcpy(to, from, static_cast<size_t>(line.extent) * N);
    return;
  }
  for (int64_t i = 0; i < line.extent; ++i) std::memcpy(to + i * line.b, from + i * line.a, N);
}

// Rows and columns of one tile. Straight transposing touches a new cache line and page for every element on one side; through a
// local tile both sides are walked along their memory.
template <size_t N>
inline constexpr int64_t kTile = N == 16 ? 32 : 64;

/// column: the loop with the source's small step; row: the one with the target's. Rows and columns at most kTile.
template <size_t N>
void copy_tile(const std::byte* from, std::byte* to, const LoopDim& column, const LoopDim& row) {
  Element<N> tile[static_cast<size_t>(kTile<N> * kTile<N>)];
  for (int64_t r = 0; r < row.extent; ++r) {
    const std::byte* source = from + r * row.a;
    if (column.a == N) {
      for (int64_t c = 0; c < column.extent; ++c)
        std::memcpy(&tile[c * kTile<N> + r], source + c * static_cast<int64_t>(N), N);
    } else {
      for (int64_t c = 0; c < column.extent; ++c) std::memcpy(&tile[c * kTile<N> + r], source + c * column.a, N);
    }
  }
  const auto unit = static_cast<int64_t>(N);
  for (int64_t c = 0; c < column.extent; ++c) {
    copy_line<N>(tile[c * kTile<N>].bytes, to + c * column.b, {row.extent, unit, row.b});
  }
}

template <size_t N>
void copy_plane(const std::byte* from, std::byte* to, const LoopDim& column, const LoopDim& row) {
  for (int64_t r = 0; r < row.extent; r += kTile<N>) {
    const LoopDim rows{std::min(kTile<N>, row.extent - r), row.a, row.b};
    for (int64_t c = 0; c < column.extent; c += kTile<N>) {
      const LoopDim columns{std::min(kTile<N>, column.extent - c), column.a, column.b};
      copy_tile<N>(from + c * column.a + r * row.a, to + c * column.b + r * row.b, columns, rows);
    }
  }
}

template <size_t N>
void copy_nest(LoopNest& nest, const std::byte* from, std::byte* to) {
  if (nest.dims.empty()) nest.dims.push_back({1, N, N});
  const LoopDim row = nest.dims.back();
  nest.dims.pop_back();
  // The source's fastest loop; a step of 0 (broadcast) costs nothing to repeat and gains nothing from a tile.
  auto column_at = nest.dims.end();
  int64_t smallest = row.a == 0 ? 0 : std::abs(row.a);
  for (auto dim = nest.dims.begin(); dim != nest.dims.end(); ++dim) {
    if (dim->a != 0 && std::abs(dim->a) < smallest) {
      smallest = std::abs(dim->a);
      column_at = dim;
    }
  }
  if (column_at == nest.dims.end()) {
    for_each_step(nest, nest.dims.size(), [&](int64_t a, int64_t b) { copy_line<N>(from + a, to + b, row); });
    return;
  }
  const LoopDim column = *column_at;
  nest.dims.erase(column_at);
  for_each_step(nest, nest.dims.size(), [&](int64_t a, int64_t b) { copy_plane<N>(from + a, to + b, column, row); });
}

}  // namespace

void copy_strided(const Box& part, const Strided& from_layout, const std::byte* from, const Strided& to_layout,
                  std::byte* to, size_t element_bytes) {
  assert(std::has_single_bit(element_bytes) && element_bytes <= 16);
  if (part.empty()) return;
  LoopNest nest = detail::loop_nest(part, from_layout, to_layout);
  reorder_for_target(nest);
  switch (scale_to_bytes(nest, element_bytes)) {
    case 1: return copy_nest<1>(nest, from, to);
    case 2: return copy_nest<2>(nest, from, to);
    case 4: return copy_nest<4>(nest, from, to);
    case 8: return copy_nest<8>(nest, from, to);
    case 16: return copy_nest<16>(nest, from, to);
    default: return;  // excluded above
  }
}

}  // namespace shardwright
