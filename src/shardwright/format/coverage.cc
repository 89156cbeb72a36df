#include "shardwright/format/coverage.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardwright {
namespace {

/// Pairs compared at most; a set that needs more is no layout that any framework writes.
constexpr uint64_t kMaxComparisons = 50'000'000;

bool before(const Box& a, const Box& b) { return std::tie(a.start, a.extent) < std::tie(b.start, b.extent); }

/// True when the boxes are exactly the cells of a grid: distinct starts per dimension, each box reaching to the next start.
bool is_grid(std::span<const int64_t> shape, const std::vector<Box>& boxes) {
  std::vector<std::vector<int64_t>> starts(shape.size());
  uint64_t cells = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    for (const auto& box : boxes) starts[d].push_back(box.start[d]);
    std::sort(starts[d].begin(), starts[d].end());
    starts[d].erase(std::unique(starts[d].begin(), starts[d].end()), starts[d].end());
    cells *= starts[d].size();
    if (cells > boxes.size()) return false;
  }
  if (cells != boxes.size()) return false;
  for (const auto& box : boxes)
    for (size_t d = 0; d < shape.size(); ++d) {
      auto next = std::upper_bound(starts[d].begin(), starts[d].end(), box.start[d]);
      if (box.start[d] + box.extent[d] != (next == starts[d].end() ? shape[d] : *next)) return false;
    }
  for (const auto& dimension : starts)
    if (!dimension.empty() && dimension.front() != 0) return false;
  return true;  // boxes are distinct (deduplicated), so each cell occurs once
}

Status check_disjoint(const std::vector<Box>& boxes) {
  uint64_t compared = 0;
  std::vector<const Box*> active;
  for (const auto& box : boxes) {
    std::erase_if(active, [&](const Box* a) { return a->start[0] + a->extent[0] <= box.start[0]; });
    for (const Box* other : active) {
      if (++compared > kMaxComparisons)
        return fail(Code::kUnsupported,
                    fmt::format("{} pieces are laid out too irregularly to be checked", boxes.size()));
      if (intersect(*other, box))
        return fail(Code::kCorrupt, "pieces " + other->text() + " and " + box.text() + " overlap");
    }
    active.push_back(&box);
  }
  return {};
}

}  // namespace

Status check_coverage(std::span<const int64_t> shape, std::vector<Box> boxes) {
  Box whole = Box::whole(shape);
  if (boxes.empty()) return fail(Code::kCorrupt, "tensor has no stored bytes");
  if (whole.empty()) return {};
  std::erase_if(boxes, [](const Box& box) { return box.empty(); });
  std::sort(boxes.begin(), boxes.end(), before);
  boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
  if (shape.empty() || is_grid(shape, boxes)) return {};
  SHARDWRIGHT_TRY(check_disjoint(boxes));
  uint64_t held = 0;
  for (const auto& box : boxes) held += box.elements();
  if (held != whole.elements())
    return fail(Code::kCorrupt, "pieces do not cover the tensor")
        .with_found(fmt::format("{} elements", held))
        .with_expected(fmt::format("{} elements", whole.elements()));
  return {};
}

}  // namespace shardwright
