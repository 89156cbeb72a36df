#include "shardwright/tensor/box.h"

#include <algorithm>

namespace shardwright {

Box Box::whole(std::span<const int64_t> shape) {
  return {std::vector<int64_t>(shape.size(), 0), std::vector<int64_t>(shape.begin(), shape.end())};
}

uint64_t Box::elements() const {
  uint64_t count = 1;
  for (int64_t e : extent) count *= static_cast<uint64_t>(e);
  return count;
}

bool Box::empty() const {
  return std::any_of(extent.begin(), extent.end(), [](int64_t e) { return e <= 0; });
}

bool Box::contains(const Box& inner) const {
  if (inner.rank() != rank()) return false;
  for (size_t d = 0; d < rank(); ++d) {
    if (inner.start[d] < start[d] || inner.start[d] + inner.extent[d] > start[d] + extent[d]) return false;
  }
  return true;
}

std::string Box::text() const {
  std::string out = "[";
  for (size_t d = 0; d < rank(); ++d) {
    out += (d == 0 ? "" : ", ") + std::to_string(start[d]) + ":" + std::to_string(start[d] + extent[d]);
  }
  return out + "]";
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box both{std::vector<int64_t>(a.rank()), std::vector<int64_t>(a.rank())};
  for (size_t d = 0; d < a.rank(); ++d) {
    int64_t begin = std::max(a.start[d], b.start[d]);
    int64_t end = std::min(a.start[d] + a.extent[d], b.start[d] + b.extent[d]);
    if (begin >= end) return std::nullopt;
    both.start[d] = begin;
    both.extent[d] = end - begin;
  }
  return both;
}

// Wraps instead of overflowing: shapes such as [0, 2^62, 2^62] are legal, and no element ever uses their strides.
std::vector<int64_t> c_strides(std::span<const int64_t> extent) {
  std::vector<int64_t> strides(extent.size());
  uint64_t step = 1;
  for (size_t d = extent.size(); d-- > 0;) {
    strides[d] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(extent[d]);
  }
  return strides;
}

int64_t Strided::offset_of(std::span<const int64_t> index) const {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += (index[d] - box.start[d]) * strides[d];
  return offset;
}

bool Strided::is_c_order() const {
  if (box.empty()) return true;
  int64_t step = 1;
  for (size_t d = box.rank(); d-- > 0;) {
    if (box.extent[d] == 1) continue;
    if (strides[d] != step) return false;
    step *= box.extent[d];
  }
  return true;
}

// From `first`, always the largest block of whole trailing dimensions that begins there and still fits: blocks grow up to the
// middle of the range and shrink after it, so each dimension gives at most two.
std::vector<Box> boxes_of_range(const Box& whole, uint64_t first, uint64_t count) {
  std::vector<Box> boxes;
  if (count == 0) return boxes;
  if (whole.rank() == 0) return {whole};
  std::vector<int64_t> strides = c_strides(whole.extent);
  uint64_t position = first;
  const uint64_t end = first + count;
  while (position < end) {
    size_t d = 0;
    while (position % static_cast<uint64_t>(strides[d]) != 0 || end - position < static_cast<uint64_t>(strides[d])) ++d;
    Box box = whole;
    uint64_t rest = position;
    for (size_t i = 0; i <= d; ++i) {
      const auto step = static_cast<uint64_t>(strides[i]);
      box.start[i] += static_cast<int64_t>(rest / step);
      box.extent[i] = 1;
      rest %= step;
    }
    const auto step = static_cast<uint64_t>(strides[d]);
    const int64_t room = whole.start[d] + whole.extent[d] - box.start[d];
    box.extent[d] = static_cast<int64_t>(std::min((end - position) / step, static_cast<uint64_t>(room)));
    position += static_cast<uint64_t>(box.extent[d]) * step;
    boxes.push_back(std::move(box));
  }
  return boxes;
}

}  // namespace shardwright
