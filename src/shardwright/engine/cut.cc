#include "shardwright/engine/cut.h"

#include <algorithm>
#include <numeric>

namespace shardwright {
namespace {

/// The cut of dimension d with slabs of at most `most` elements; step 0 when not even one index fits.
Cut cut_dimension(std::span<const int64_t> extents, size_t d, uint64_t most, uint64_t block) {
  Cut cut;
  for (size_t i = 0; i < d; ++i) cut.outer *= static_cast<uint64_t>(extents[i]);
  for (size_t i = d + 1; i < extents.size(); ++i) cut.inner *= static_cast<uint64_t>(extents[i]);
  cut.extent = static_cast<uint64_t>(extents[d]);
  uint64_t unit = block / std::gcd(cut.inner, block);  // indices between two block starts
  cut.step = most / cut.inner / unit * unit;
  // Slabs of the next outer index must start at a block too.
  if (cut.outer > 1 && cut.extent * cut.inner % block != 0) cut.step = 0;
  return cut;
}

}  // namespace

Range Cut::range(uint64_t part) const {
  uint64_t slab = part % slabs(), before = part / slabs();
  uint64_t start = slab * step;
  return {(before * extent + start) * inner, std::min(step, extent - start) * inner};
}

Cut cut_slabs(std::span<const int64_t> extents, uint64_t most, uint64_t block, uint64_t align) {
  uint64_t total = 1;
  for (int64_t extent : extents) total *= static_cast<uint64_t>(extent);
  Cut whole{1, 1, total, 1};
  if (total <= most || total == 0) return whole;
  Cut best = whole;
  for (size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == 1) continue;
    Cut cut = cut_dimension(extents, d, most, block);
    if (cut.step == 0) {
      // Too coarse here: remember the finest that the block allows, and look further in.
      uint64_t unit = block / std::gcd(cut.inner, block);
      bool aligned = cut.outer == 1 || cut.extent * cut.inner % block == 0;
      if (aligned && unit < cut.extent) best = {cut.outer, cut.extent, cut.inner, unit};
      continue;
    }
    uint64_t both = std::lcm(align, block / std::gcd(cut.inner, block));
    if (cut.outer == 1 && cut.step >= both) cut.step = cut.step / both * both;
    // Even slabs: 5 + 5 instead of 8 + 2, where no chunk or block wants otherwise.
    if (align == 1 && block == 1) cut.step = (cut.extent + cut.slabs() - 1) / cut.slabs();
    return cut;
  }
  return best;
}

}  // namespace shardwright
