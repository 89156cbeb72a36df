#include "shardwright/engine/regions.h"

#include <algorithm>
#include <tuple>

#include "shardwright/format/coverage.h"

namespace shardwright {
namespace {

/// More pieces than this are not looked at pair by pair.
constexpr size_t kMostMerged = 256;

/// True when the elements of the box follow each other in the tensor, and begin and end with whole bytes.
bool is_stretch(std::span<const int64_t> shape, const Box& box, DType stored) {
  size_t d = 0;
  while (d < shape.size() && box.extent[d] == 1) ++d;
  for (++d; d < shape.size(); ++d)
    if (box.extent[d] != shape[d]) return false;
  auto before = static_cast<uint64_t>(Strided{Box::whole(shape), c_strides(shape)}.offset_of(box.start));
  return bytes_of_elements(stored, before) && bytes_of_elements(stored, box.elements());
}

/// Boxes that differ in dimension d only come one after the other there.
bool before_along(const Box& a, const Box& b, size_t d) {
  for (size_t i = 0; i < a.rank(); ++i)
    if (i != d && (a.start[i] != b.start[i] || a.extent[i] != b.extent[i]))
      return std::tie(a.start[i], a.extent[i]) < std::tie(b.start[i], b.extent[i]);
  return a.start[d] < b.start[d];
}

bool same_but(const Box& a, const Box& b, size_t d) {
  for (size_t i = 0; i < a.rank(); ++i)
    if (i != d && (a.start[i] != b.start[i] || a.extent[i] != b.extent[i])) return false;
  return true;
}

/// Joins neighbours along d whose gap is at most `most` indices, unless another box lies in the gap.
void merge_along(std::vector<Box>& boxes, size_t d, int64_t most) {
  std::ranges::sort(boxes, [&](const Box& a, const Box& b) { return before_along(a, b, d); });
  std::vector<Box> merged;
  for (const Box& box : boxes) {
    if (!merged.empty() && same_but(merged.back(), box, d)) {
      Box both = merged.back();
      both.extent[d] = box.start[d] + box.extent[d] - both.start[d];
      int64_t gap = box.start[d] - (merged.back().start[d] + merged.back().extent[d]);
      auto strange = [&](const Box& other) { return intersect(other, both) && !both.contains(other); };
      if (gap >= 0 && gap <= most && std::ranges::none_of(boxes, strange)) {
        merged.back() = std::move(both);
        continue;
      }
    }
    merged.push_back(box);
  }
  // What lies within another now is read with it.
  std::erase_if(merged, [&](const Box& box) {
    return std::ranges::any_of(merged, [&](const Box& other) { return other != box && other.contains(box); });
  });
  boxes = std::move(merged);
}

}  // namespace

std::vector<Region> regions_of(const Catalog& from, TensorId source, const Catalog& to, TensorId target) {
  auto shape = to.spec(target).shape;
  auto pieces = to.pieces(target);
  std::vector<Region> regions;
  std::vector<Box> boxes;
  for (const Piece& piece : pieces) boxes.push_back(piece.box);
  if (boxes.size() == 1 && boxes[0] == Box::whole(shape)) return {};
  auto flat = from.flat(source);
  auto straight = [&](const Piece& piece) {
    return piece.place.site == Place::kMemory && is_stretch(shape, piece.box, flat->stored) &&
           layout_of(piece).is_c_order();
  };
  if (flat && flat->place.site != Place::kCall && std::ranges::all_of(pieces, straight)) {
    for (uint32_t i = 0; i < pieces.size(); ++i) regions.push_back({pieces[i].box, i});
    std::ranges::sort(regions, {}, [](const Region& region) { return region.box.start; });
    return regions;
  }
  if (check_coverage(shape, boxes).ok()) return {};
  // A run of the file ends where a dimension is cut: gaps count in bytes of what lies behind it. Rows far apart gain nothing.
  double row_bytes = static_cast<double>(to.spec(target).nbytes());
  for (size_t d = 0; d < shape.size() && boxes.size() <= kMostMerged; ++d) row_bytes /= static_cast<double>(shape[d]);
  for (size_t d = shape.size(); d-- > 0 && boxes.size() <= kMostMerged;) {
    merge_along(boxes, d, d == 0 ? 0 : static_cast<int64_t>(static_cast<double>(kGapBytes) / std::max(row_bytes, 1.0)));
    row_bytes *= static_cast<double>(shape[d]);
  }
  for (Box& box : boxes) regions.push_back({std::move(box)});
  std::ranges::sort(regions, {}, [](const Region& region) { return region.box.start; });
  return regions;
}

}  // namespace shardwright
