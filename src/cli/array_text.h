/// Values as NumPy prints them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwright/tensor/dtype.h"

namespace shardwright::cli {

/// One element, whatever its type: `integer` holds the bits of I64 and U64, which a double cannot, and of the other integers.
struct Element {
  double real = 0, imaginary = 0;
  uint64_t integer = 0;
};

/// NumPy's threshold of the short form, and how many elements it then shows at each end of a dimension.
inline constexpr int64_t kShortFormOver = 1000, kEdge = 3;

/// How many elements of a dimension are shown.
inline int64_t shown_of(int64_t extent, bool short_form) {
  return short_form && extent > 2 * kEdge ? 2 * kEdge : extent;
}

/// str(array): shape of the array, and those of its elements that are shown, in C order. Lines of at most `width` columns where that is
/// possible. Floats print with at most 8 digits after the point, fewer where they tell the value apart from its neighbours of that type.
std::string array_text(DType dtype, std::span<const int64_t> shape, bool short_form, const std::vector<Element>& shown,
                       size_t width);

/// The shortest digits that tell the value apart from its neighbours of that type: "0.1", "1e-10", "nan".
std::string shortest_text(DType dtype, double value);

/// As JSON: numbers, true and false, "NaN" and the like, [real, imaginary].
std::string element_json(DType dtype, const Element& element);

}  // namespace shardwright::cli
