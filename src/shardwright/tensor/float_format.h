/// Bit layouts of the floating types, and exact maths on their codes (the bits of one element, in the low bits of an integer).
/// Mostly integers; the one addition in narrow() and the product in widen() expect the processor's default rounding mode.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "shardwright/tensor/dtype.h"

namespace shardwright::detail {

enum class Specials : uint8_t {
  kIeee,     ///< infinities and NaNs in the highest exponent; overflow gives infinity
  kNanOnly,  ///< "fn": all ones is NaN, no infinity; overflow and infinity give NaN
  kFnuz,     ///< the code of -0 is the only NaN, no infinity; overflow and infinity give NaN
  kFinite,   ///< neither; overflow and infinity give the largest value, NaN gives zero
};

template <int kExponentBits_, int kMantissaBits_, int kBias_, Specials kSpecials_>
struct FloatFormat {
  static constexpr int kExponentBits = kExponentBits_, kMantissaBits = kMantissaBits_, kBias = kBias_;
  static constexpr Specials kSpecials = kSpecials_;
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr uint32_t kSign = 1u << (kBits - 1);
  static constexpr uint32_t kAllOnes = kSign - 1;                                      ///< without the sign
  static constexpr uint32_t kInfinity = ((1u << kExponentBits) - 1) << kMantissaBits;  ///< kIeee only
  static constexpr uint32_t kLargest = kSpecials == Specials::kIeee      ? kInfinity - 1
                                       : kSpecials == Specials::kNanOnly ? kAllOnes - 1
                                                                         : kAllOnes;
  static constexpr uint32_t kOverflow = kSpecials == Specials::kIeee      ? kInfinity
                                        : kSpecials == Specials::kNanOnly ? kAllOnes
                                        : kSpecials == Specials::kFnuz    ? kSign
                                                                          : kAllOnes;
  static constexpr uint32_t kNan = kSpecials == Specials::kIeee   ? kInfinity | (1u << (kMantissaBits - 1))
                                   : kSpecials == Specials::kFnuz ? kSign
                                                                  : kAllOnes;  ///< quiet, without payload
};

using F16Format = FloatFormat<5, 10, 15, Specials::kIeee>;
using BF16Format = FloatFormat<8, 7, 127, Specials::kIeee>;
using F8E5M2Format = FloatFormat<5, 2, 15, Specials::kIeee>;
using F8E4M3Format = FloatFormat<4, 3, 7, Specials::kNanOnly>;
using F8E4M3FNUZFormat = FloatFormat<4, 3, 8, Specials::kFnuz>;
using F8E5M2FNUZFormat = FloatFormat<5, 2, 16, Specials::kFnuz>;
using F8E3M4Format = FloatFormat<3, 4, 3, Specials::kIeee>;
using F8E4M3B11FNUZFormat = FloatFormat<4, 3, 11, Specials::kFnuz>;
using F6E2M3Format = FloatFormat<2, 3, 1, Specials::kFinite>;
using F6E3M2Format = FloatFormat<3, 2, 3, Specials::kFinite>;
using F4Format = FloatFormat<2, 1, 1, Specials::kFinite>;

/// The two types that values are computed in. Code is an integer of their size.
struct F32Traits {
  using Code = uint32_t;
  using Value = float;
  static constexpr int kMantissaBits = 23, kBias = 127;
};
struct F64Traits {
  using Code = uint64_t;
  using Value = double;
  static constexpr int kMantissaBits = 52, kBias = 1023;
};

/// Code of the value nearest to `bits` (an F32 or F64 pattern), ties to even, as ml_dtypes has it for specials: see Specials.
/// NaN keeps its sign where the target has a signed NaN, and for F16, as in NumPy, the top of its payload; a kFinite target
/// gets +0 for -NaN and -0 for +NaN, which is what ml_dtypes does. Without branches, so that loops over it become SIMD code.
template <class Format, class Wide>
constexpr uint32_t narrow(typename Wide::Code bits) {
  using Code = typename Wide::Code;
  constexpr int kShift = Wide::kMantissaBits - Format::kMantissaBits;
  constexpr int kWidth = std::numeric_limits<Code>::digits;
  constexpr Code kOne = 1;
  constexpr Code kWideInfinity = static_cast<Code>(2 * Wide::kBias + 1) << Wide::kMantissaBits;
  constexpr int kRebias = Wide::kBias - Format::kBias;

  const auto sign = static_cast<uint32_t>(bits >> (kWidth - 1)) << (Format::kBits - 1);
  const Code magnitude = bits & ~(kOne << (kWidth - 1));
  // Adding just under half, and one more when the kept part is odd, rounds to nearest even; a carry walks into the exponent.
  Code code = ((magnitude + ((kOne << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1)) >> kShift) -
              (static_cast<Code>(kRebias) << Format::kMantissaBits);
  if constexpr (kRebias > 0) {
    // Below the target's normal values the unit is fixed, and an addition to a number with that unit rounds to it.
    using Value = typename Wide::Value;
    constexpr Code kSmallestNormal = static_cast<Code>(kRebias + 1) << Wide::kMantissaBits;
    constexpr Code kUnitAbove = static_cast<Code>(kRebias + kShift + 1) << Wide::kMantissaBits;
    const auto subnormal =
        std::bit_cast<Code>(std::bit_cast<Value>(magnitude) + std::bit_cast<Value>(kUnitAbove)) - kUnitAbove;
    code = magnitude < kSmallestNormal ? subnormal : code;
  }
  code = code > Format::kLargest ? Code{Format::kOverflow} : code;
  Code nan = Format::kNan;
  if constexpr (std::is_same_v<Format, F16Format>) {
    const Code payload = (magnitude >> kShift) & ((kOne << Format::kMantissaBits) - 1);
    nan = Format::kInfinity | (payload == 0 ? Code{1} : payload);
  }
  if constexpr (Format::kSpecials == Specials::kFinite) {
    return magnitude > kWideInfinity ? sign ^ Format::kSign : sign | static_cast<uint32_t>(code);
  }
  code = magnitude > kWideInfinity ? nan : code;
  if constexpr (Format::kSpecials == Specials::kFnuz) {
    return code == 0 ? 0 : static_cast<uint32_t>(code) | sign;
  }
  return sign | static_cast<uint32_t>(code);
}

/// The F32 or F64 pattern of a code; exact. F16 keeps a NaN's payload as it is (no quieting), other types give a quiet NaN of
/// its sign. FNUZ NaN is negative, as in ml_dtypes. Not for BF16: its code is the top half of an F32.
template <class Format, class Wide>
constexpr typename Wide::Code widen(uint32_t code) {
  using Code = typename Wide::Code;
  using Value = typename Wide::Value;
  static_assert(Format::kBias < 127);
  constexpr int kShift = Wide::kMantissaBits - Format::kMantissaBits;
  constexpr int kWidth = std::numeric_limits<Code>::digits;
  constexpr Code kWideInfinity = static_cast<Code>(2 * Wide::kBias + 1) << Wide::kMantissaBits;
  constexpr Code kQuiet = Code{1} << (Wide::kMantissaBits - 1);
  // 2^(1 - bias - mantissa bits), the value of the smallest subnormal.
  constexpr Value kUnit = std::bit_cast<Value>(
      static_cast<Code>(Wide::kBias + 1 - Format::kBias - Format::kMantissaBits) << Wide::kMantissaBits);

  const Code sign = static_cast<Code>(code & Format::kSign) << (kWidth - Format::kBits);
  const uint32_t magnitude = code & Format::kAllOnes;
  const Code normal = (static_cast<Code>(magnitude) << kShift) +
                      (static_cast<Code>(Wide::kBias - Format::kBias) << Wide::kMantissaBits);
  const auto subnormal = std::bit_cast<Code>(static_cast<Value>(static_cast<int32_t>(magnitude)) * kUnit);
  Code value = magnitude < (1u << Format::kMantissaBits) ? subnormal : normal;
  if constexpr (std::is_same_v<Format, F16Format>) {
    value = magnitude >= Format::kInfinity ? kWideInfinity | (static_cast<Code>(magnitude) << kShift) : value;
  } else if constexpr (Format::kSpecials == Specials::kIeee) {
    value = magnitude == Format::kInfinity ? kWideInfinity : value;
    value = magnitude > Format::kInfinity ? kWideInfinity | kQuiet : value;
  } else if constexpr (Format::kSpecials == Specials::kNanOnly) {
    value = magnitude == Format::kNan ? kWideInfinity | kQuiet : value;
  } else if constexpr (Format::kSpecials == Specials::kFnuz) {
    value = code == Format::kNan ? kWideInfinity | kQuiet : value;
  }
  return sign | value;
}

/// widen() for every code of a type of at most 8 bits.
template <class Format>
inline constexpr std::array<float, size_t{1} << Format::kBits> kValues = [] {
  std::array<float, size_t{1} << Format::kBits> values{};
  for (uint32_t code = 0; code < values.size(); ++code) {
    values[code] = std::bit_cast<float>(widen<Format, F32Traits>(code));
  }
  return values;
}();

}  // namespace shardwright::detail
