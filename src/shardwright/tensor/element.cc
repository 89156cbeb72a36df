#include <cmath>
#include <limits>

#include "shardwright/tensor/convert.h"
#include "shardwright/tensor/float_format.h"

namespace shardwright {
namespace {

template <class T>
T at(View data, uint64_t index) {
  return load_le<T>(data.subspan(index * sizeof(T), sizeof(T)));
}

template <class Format>
double small_at(View data, uint64_t index) {
  const uint64_t bit = index * Format::kBits, byte = bit / 8;
  uint32_t bits = std::to_integer<uint32_t>(data[byte]);
  if (byte + 1 < data.size()) bits |= std::to_integer<uint32_t>(data[byte + 1]) << 8;
  return detail::kValues<Format>[(bits >> (bit % 8)) & (Format::kSign * 2 - 1)];
}

double e8m0(uint8_t code) {
  return code == 0xFF ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
}

}  // namespace

double element_value(DType dtype, View data, uint64_t index, int part) {
  using namespace detail;
  switch (dtype) {
    case DType::kBool: return at<uint8_t>(data, index) != 0 ? 1 : 0;
    case DType::kF4: return small_at<F4Format>(data, index);
    case DType::kF6E2M3: return small_at<F6E2M3Format>(data, index);
    case DType::kF6E3M2: return small_at<F6E3M2Format>(data, index);
    case DType::kU8: return at<uint8_t>(data, index);
    case DType::kI8: return at<int8_t>(data, index);
    case DType::kF8E5M2: return small_at<F8E5M2Format>(data, index);
    case DType::kF8E4M3: return small_at<F8E4M3Format>(data, index);
    case DType::kF8E8M0: return e8m0(at<uint8_t>(data, index));
    case DType::kF8E4M3FNUZ: return small_at<F8E4M3FNUZFormat>(data, index);
    case DType::kF8E5M2FNUZ: return small_at<F8E5M2FNUZFormat>(data, index);
    case DType::kF8E3M4: return small_at<F8E3M4Format>(data, index);
    case DType::kF8E4M3B11FNUZ: return small_at<F8E4M3B11FNUZFormat>(data, index);
    case DType::kI16: return at<int16_t>(data, index);
    case DType::kU16: return at<uint16_t>(data, index);
    case DType::kF16: return std::bit_cast<double>(widen<F16Format, F64Traits>(at<uint16_t>(data, index)));
    case DType::kBF16: return std::bit_cast<float>(static_cast<uint32_t>(at<uint16_t>(data, index)) << 16);
    case DType::kI32: return at<int32_t>(data, index);
    case DType::kU32: return at<uint32_t>(data, index);
    case DType::kF32: return at<float>(data, index);
    case DType::kC64: return at<float>(data, index * 2 + static_cast<uint64_t>(part));
    case DType::kC128: return at<double>(data, index * 2 + static_cast<uint64_t>(part));
    case DType::kF64: return at<double>(data, index);
    case DType::kI64: return static_cast<double>(at<int64_t>(data, index));
    case DType::kU64: return static_cast<double>(at<uint64_t>(data, index));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

size_t swap_unit_bytes(DType dtype) {
  if (dtype_row(dtype).kind == Kind::kComplex) return dtype_row(dtype).block_bytes / 2;
  const DTypeRow& row = dtype_row(dtype);
  return row.block_elems == 1 ? row.block_bytes : 1;
}

}  // namespace shardwright
