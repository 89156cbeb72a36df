/// Value conversion between element types, and byte order.
#pragma once

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

/// True when convert() has a row for the pair: floating to floating (F64 F32 F16 BF16 F8_* F6_* F4, not F8_E8M0), and a type to itself.
bool can_convert(DType from, DType to);

/// Converts whole elements, little-endian, round to nearest even straight from the source value (never twice; ml_dtypes rounds F64
/// to its types by way of F32). NaN stays NaN (sign kept), -0 stays -0 where the target has it. Overflow and NaN payloads as
/// NumPy's and ml_dtypes' astype have them for the pair, bit for bit: F6 and F4 saturate, and a NaN becomes a zero there.
/// Packed types hold their elements low bits first. Input and output do not overlap; any alignment. The caller's rounding mode
/// and flush-to-zero flags do not matter. Where the input is cut does not show. Thread-safe; no allocation, 8 KiB of stack.
/// REQUIRES: in.size() and out.size() hold the same number of elements, else kInternal. Errors: kUnsupported for a pair without a row.
Status convert(DType from, View in, DType to, MutableView out);

/// Reverses the bytes of every unit of `unit_bytes` (2, 4, 8) in place, a part unit at the end is left; a complex element has two units.
void byteswap(MutableView data, size_t unit_bytes);
/// Unit to swap for a big-endian array of this type; 1 when there is nothing to swap.
size_t swap_unit_bytes(DType dtype);

/// Numeric value of element `index`, for statistics, tolerance and printing; complex: the real part and, by part = 1, the imaginary.
/// 64-bit integers are rounded to double. REQUIRES: the element lies within data.
double element_value(DType dtype, View data, uint64_t index, int part = 0);

}  // namespace shardwright
