/// Value conversion between element types, and byte order.
#pragma once

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

/// True when convert() has a row for the pair: floating to floating (F64 F32 F16 BF16 F8_* F6_* F4, not F8_E8M0), and a type to itself.
bool can_convert(DType from, DType to);

/// Converts whole elements, little-endian, round to nearest even straight from the source value (never twice). NaN stays NaN (sign
/// kept), -0 stays -0 where the target has it. Overflow as ml_dtypes' astype does it for the pair. Input and output do not overlap.
/// REQUIRES: in.size() and out.size() hold the same number of elements. Errors: kUnsupported for a pair without a row.
Status convert(DType from, View in, DType to, MutableView out);

/// Reverses the bytes of every unit of `unit_bytes` (2, 4, 8) in place; C64 has two units an element, so the unit is 4.
void byteswap(MutableView data, size_t unit_bytes);
/// Unit to swap for a big-endian array of this type; 1 when there is nothing to swap.
size_t swap_unit_bytes(DType dtype);

/// Numeric value of element `index`, for statistics, tolerance and printing; complex: the real part and, by part = 1, the imaginary.
double element_value(DType dtype, View data, uint64_t index, int part = 0);

}  // namespace shardwright
