/// Half-open hyper-rectangles of element indices, and how they lie in memory or in a file.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardwright {

/// start[d] <= index[d] < start[d] + extent[d], in element indices of the whole tensor, dimension 0 the slowest. Rank 0: one element.
struct Box {
  std::vector<int64_t> start, extent;
  static Box whole(std::span<const int64_t> shape);
  size_t rank() const { return extent.size(); }
  uint64_t elements() const;  ///< REQUIRES: the product fits (checked when the box was built)
  bool empty() const;
  bool contains(const Box& inner) const;
  bool operator==(const Box&) const = default;
  auto operator<=>(const Box&) const = default;  ///< by start, then by extent  NOLINT(modernize-use-nullptr)
  std::string text() const;                      ///< "[0:2, 3:7]"
};

/// nullopt when they share no element; of rank 0 both are the one element. REQUIRES: equal rank.
std::optional<Box> intersect(const Box& a, const Box& b);

/// Strides, in elements, of C order over `extent`.
std::vector<int64_t> c_strides(std::span<const int64_t> extent);

/// An array laid out by strides: element `start + i` of the tensor lies at element `sum(i[d] * stride[d])` after `origin`.
/// Strides in elements, any sign, 0 allowed.
struct Strided {
  Box box;                       ///< which part of the tensor the array holds
  std::vector<int64_t> strides;  ///< per dimension
  int64_t offset_of(
      std::span<const int64_t> index) const;  ///< elements from the array's first element; index in the tensor
  bool is_c_order() const;                    ///< contiguous C order of its box (dimensions of extent 1 do not matter)
};

/// Calls `run(offset_a, offset_b, elements)` for maximal runs of `part` that are contiguous (stride 1) in both arrays, in C order of
/// `part`; offsets are elements from each array's first element. Element by element where a layout has no stride-1 runs.
/// REQUIRES: part lies within a.box and b.box; part not empty. Cost O(runs), allocation O(rank).
void for_each_run(const Box& part, const Strided& a, const Strided& b,
                  const std::function<void(int64_t offset_a, int64_t offset_b, int64_t elements)>& run);

/// Copies `part` from one strided array to another, in tiles where one side is transposed. element_bytes 1, 2, 4, 8 or 16.
/// from and to point at each array's first element (offset 0), of any alignment. Not for block types.
/// REQUIRES: as for_each_run, but part may be empty; the places written do not overlap each other or those read.
void copy_strided(const Box& part, const Strided& from_layout, const std::byte* from, const Strided& to_layout,
                  std::byte* to, size_t element_bytes);

/// Up to 2 * rank + 1 disjoint boxes, in C order, that together are elements [first, first + count) of `whole` in its C order.
/// REQUIRES: first + count <= whole.elements(). No boxes for count 0.
std::vector<Box> boxes_of_range(const Box& whole, uint64_t first, uint64_t count);

}  // namespace shardwright
