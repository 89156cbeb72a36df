#include "shardwright/tensor/convert.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cfenv>
#include <cstring>

#include "shardwright/tensor/float_format.h"

// One function compiled for several processors, chosen when the program starts. Only g++ has it; sanitizers instrument the
// chooser, which runs before they are ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SHARDWRIGHT_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SHARDWRIGHT_CLONES
#endif
#define SHARDWRIGHT_INLINE inline __attribute__((always_inline))

namespace shardwright {
namespace {

using namespace detail;

/// Converts `count` elements, a multiple of the larger block. Any alignment.
using Kernel = void (*)(const std::byte* __restrict in, std::byte* __restrict out, size_t count);

template <class T>
SHARDWRIGHT_INLINE T load(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
SHARDWRIGHT_INLINE void store(std::byte* to, size_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <class Format>
using Unit = std::conditional_t<(Format::kBits > 8), uint16_t, uint8_t>;

// Codes of less than a byte: element i of a block lies in bits [i * kBits, (i + 1) * kBits) of its little-endian bytes. For F4
// that is the low half first, as in torch's float4_e2m1fn_x2. For F6 no library packs yet; this is the same rule.
template <class Format>
inline constexpr size_t kBlock = Format::kBits == 4   ? 2
                                 : Format::kBits == 6 ? 4
                                                      : 1;

template <class Format, class Wide>
SHARDWRIGHT_INLINE void narrow_loop(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  if constexpr (kBlock<Format> == 1) {
    for (size_t i = 0; i < count; ++i) {
      store(out, i, static_cast<Unit<Format>>(narrow<Format, Wide>(load<typename Wide::Code>(in, i))));
    }
  } else {
    constexpr size_t kBlockBytes = kBlock<Format> * Format::kBits / 8;
    for (size_t i = 0; i < count / kBlock<Format>; ++i) {
      uint32_t packed = 0;
      for (size_t j = 0; j < kBlock<Format>; ++j) {
        packed |= narrow<Format, Wide>(load<typename Wide::Code>(in, i * kBlock<Format> + j)) << (j * Format::kBits);
      }
      std::memcpy(out + i * kBlockBytes, &packed, kBlockBytes);
    }
  }
}

/// One table look-up an element: table[code] is the converted element.
template <class Format, class Table>
SHARDWRIGHT_INLINE void lookup_loop(const Table& table, const std::byte* __restrict in, std::byte* __restrict out,
                                    size_t count) {
  constexpr size_t kBlockBytes = kBlock<Format> * Format::kBits / 8;
  for (size_t i = 0; i < count / kBlock<Format>; ++i) {
    uint32_t packed = 0;
    std::memcpy(&packed, in + i * kBlockBytes, kBlockBytes);
    for (size_t j = 0; j < kBlock<Format>; ++j) {
      store(out, i * kBlock<Format> + j, table[(packed >> (j * Format::kBits)) & (Format::kSign * 2 - 1)]);
    }
  }
}

#define SHARDWRIGHT_KERNEL(name, ...) \
  SHARDWRIGHT_CLONES void name(const std::byte* __restrict in, std::byte* __restrict out, size_t count) { __VA_ARGS__; }

SHARDWRIGHT_KERNEL(f32_to_f16, narrow_loop<F16Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_bf16, narrow_loop<BF16Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e5m2, narrow_loop<F8E5M2Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e4m3, narrow_loop<F8E4M3Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e4m3fnuz, narrow_loop<F8E4M3FNUZFormat, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e5m2fnuz, narrow_loop<F8E5M2FNUZFormat, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e3m4, narrow_loop<F8E3M4Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e4m3b11fnuz, narrow_loop<F8E4M3B11FNUZFormat, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e2m3, narrow_loop<F6E2M3Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e3m2, narrow_loop<F6E3M2Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e2m1, narrow_loop<F4Format, F32Traits>(in, out, count))

SHARDWRIGHT_KERNEL(f64_to_f16, narrow_loop<F16Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_bf16, narrow_loop<BF16Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e5m2, narrow_loop<F8E5M2Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e4m3, narrow_loop<F8E4M3Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e4m3fnuz, narrow_loop<F8E4M3FNUZFormat, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e5m2fnuz, narrow_loop<F8E5M2FNUZFormat, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e3m4, narrow_loop<F8E3M4Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e4m3b11fnuz, narrow_loop<F8E4M3B11FNUZFormat, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e2m3, narrow_loop<F6E2M3Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e3m2, narrow_loop<F6E3M2Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e2m1, narrow_loop<F4Format, F64Traits>(in, out, count))

SHARDWRIGHT_KERNEL(f16_to_f32,
                   for (size_t i = 0; i < count; ++i) store(out, i, widen<F16Format, F32Traits>(load<uint16_t>(in, i))))
SHARDWRIGHT_KERNEL(f16_to_f64,
                   for (size_t i = 0; i < count; ++i) store(out, i, widen<F16Format, F64Traits>(load<uint16_t>(in, i))))
SHARDWRIGHT_KERNEL(bf16_to_f32,
                   for (size_t i = 0; i < count; ++i) store(out, i, static_cast<uint32_t>(load<uint16_t>(in, i)) << 16))
SHARDWRIGHT_KERNEL(f64_to_f32,
                   for (size_t i = 0; i < count; ++i) store(out, i, static_cast<float>(load<double>(in, i))))
SHARDWRIGHT_KERNEL(f32_to_f64,
                   for (size_t i = 0; i < count; ++i) store(out, i, static_cast<double>(load<float>(in, i))))

// From one 16-bit type to the other; a NaN loses its payload, as in ml_dtypes.
SHARDWRIGHT_KERNEL(
    bf16_to_f16, for (size_t i = 0; i < count; ++i) {
      const uint32_t wide = static_cast<uint32_t>(load<uint16_t>(in, i)) << 16;
      const uint32_t nan = ((wide >> 16) & F16Format::kSign) | F16Format::kNan;
      const uint32_t code = narrow<F16Format, F32Traits>(wide);
      store(out, i, static_cast<uint16_t>((wide & 0x7FFFFFFF) > 0x7F800000 ? nan : code));
    })
SHARDWRIGHT_KERNEL(
    f16_to_bf16, for (size_t i = 0; i < count; ++i) {
      store(out, i,
            static_cast<uint16_t>(narrow<BF16Format, F32Traits>(widen<F16Format, F32Traits>(load<uint16_t>(in, i)))));
    })

/// From a type of at most 8 bits.
template <class Format>
void small_to_f32(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  lookup_loop<Format>(kValues<Format>, in, out, count);
}
template <class Format, class Target>
void small_to_half(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  // Not constexpr: clang takes arithmetic that gives a NaN for no constant.
  static const auto kCodes = [] {
    std::array<uint16_t, size_t{1} << Format::kBits> codes{};
    for (uint32_t code = 0; code < codes.size(); ++code) {
      codes[code] = static_cast<uint16_t>(narrow<Target, F32Traits>(widen<Format, F32Traits>(code)));
    }
    return codes;
  }();
  lookup_loop<Format>(kCodes, in, out, count);
}

/// How a type is reached and left. Every step to F32 is exact. Null: the type itself, or never asked (F64 leaves by from_f64).
struct Row {
  DType dtype;
  Kernel from_f64, from_f32, to_f32, to_f16 = nullptr, to_bf16 = nullptr;
};

template <class Format>
constexpr Row small_row(DType dtype, Kernel from_f64, Kernel from_f32) {
  return {dtype,
          from_f64,
          from_f32,
          small_to_f32<Format>,
          small_to_half<Format, F16Format>,
          small_to_half<Format, BF16Format>};
}

const Row kRows[] = {
    {DType::kF64, nullptr, f32_to_f64, nullptr},
    {DType::kF32, f64_to_f32, nullptr, nullptr},
    {DType::kF16, f64_to_f16, f32_to_f16, f16_to_f32, nullptr, f16_to_bf16},
    {DType::kBF16, f64_to_bf16, f32_to_bf16, bf16_to_f32, bf16_to_f16, nullptr},
    small_row<F8E5M2Format>(DType::kF8E5M2, f64_to_e5m2, f32_to_e5m2),
    small_row<F8E4M3Format>(DType::kF8E4M3, f64_to_e4m3, f32_to_e4m3),
    small_row<F8E4M3FNUZFormat>(DType::kF8E4M3FNUZ, f64_to_e4m3fnuz, f32_to_e4m3fnuz),
    small_row<F8E5M2FNUZFormat>(DType::kF8E5M2FNUZ, f64_to_e5m2fnuz, f32_to_e5m2fnuz),
    small_row<F8E3M4Format>(DType::kF8E3M4, f64_to_e3m4, f32_to_e3m4),
    small_row<F8E4M3B11FNUZFormat>(DType::kF8E4M3B11FNUZ, f64_to_e4m3b11fnuz, f32_to_e4m3b11fnuz),
    small_row<F6E2M3Format>(DType::kF6E2M3, f64_to_e2m3, f32_to_e2m3),
    small_row<F6E3M2Format>(DType::kF6E3M2, f64_to_e3m2, f32_to_e3m2),
    small_row<F4Format>(DType::kF4, f64_to_e2m1, f32_to_e2m1),
};

const Row* row_of(DType dtype) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.dtype == dtype; });
  return row == std::end(kRows) ? nullptr : row;
}

/// One step, or two through F32. `second` null: one.
struct Route {
  Kernel first, second;
};

Route route_of(DType from, DType to) {
  const Row &source = *row_of(from), &target = *row_of(to);
  if (from == DType::kF64) return {target.from_f64, nullptr};
  if (from == DType::kF32) return {target.from_f32, nullptr};
  if (to == DType::kF32) return {source.to_f32, nullptr};
  if (to == DType::kF16) return {source.to_f16, nullptr};
  if (to == DType::kBF16) return {source.to_bf16, nullptr};
  // By way of F32 the processor would quieten a NaN, and NumPy does not.
  if (from == DType::kF16 && to == DType::kF64) return {f16_to_f64, nullptr};
  return {source.to_f32, target.from_f32};
}

// Small enough for the first-level cache, and a multiple of every block.
constexpr size_t kStepElements = 2048;

void run(const Route& route, DType from, View in, DType to, MutableView out, size_t count) {
  if (route.second == nullptr) return route.first(in.data(), out.data(), count);
  alignas(64) std::byte buffer[kStepElements * sizeof(float)];
  for (size_t done = 0; done < count; done += kStepElements) {
    const size_t step = std::min(kStepElements, count - done);
    route.first(in.data() + *bytes_of_elements(from, done), buffer, step);
    route.second(buffer, out.data() + *bytes_of_elements(to, done), step);
  }
}

/// Conversions between F32 and F64 are the processor's, so a caller's rounding mode or flush-to-zero must not reach them.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

template <class T, T (*kSwap)(T)>
SHARDWRIGHT_INLINE void swap_loop(std::byte* data, size_t count) {
  for (size_t i = 0; i < count; ++i) store(data, i, kSwap(load<T>(data, i)));
}

SHARDWRIGHT_INLINE uint16_t swap16(uint16_t value) { return static_cast<uint16_t>(value << 8 | value >> 8); }
SHARDWRIGHT_INLINE uint32_t swap32(uint32_t value) { return __builtin_bswap32(value); }
SHARDWRIGHT_INLINE uint64_t swap64(uint64_t value) { return __builtin_bswap64(value); }

SHARDWRIGHT_CLONES void swap_units_16(std::byte* data, size_t count) { swap_loop<uint16_t, swap16>(data, count); }
SHARDWRIGHT_CLONES void swap_units_32(std::byte* data, size_t count) { swap_loop<uint32_t, swap32>(data, count); }
SHARDWRIGHT_CLONES void swap_units_64(std::byte* data, size_t count) { swap_loop<uint64_t, swap64>(data, count); }

/// Elements in `bytes` bytes; whole blocks only.
size_t elements_in(DType dtype, size_t bytes) {
  return bytes / dtype_row(dtype).block_bytes * dtype_row(dtype).block_elems;
}

}  // namespace

bool can_convert(DType from, DType to) { return from == to || (row_of(from) != nullptr && row_of(to) != nullptr); }

Status convert(DType from, View in, DType to, MutableView out) {
  if (!can_convert(from, to)) {
    return fail(Code::kUnsupported,
                "no conversion from " + std::string(dtype_row(from).name) + " to " + std::string(dtype_row(to).name))
        .with_hint("only floating types (not F8_E8M0) convert into each other");
  }
  const size_t count = elements_in(from, in.size());
  if (bytes_of_elements(from, count) != in.size() || bytes_of_elements(to, count) != out.size()) {
    return fail(Code::kInternal, "conversion of buffers that differ in elements")
        .with_found(std::to_string(in.size()) + " bytes of " + std::string(dtype_row(from).name) + " and " +
                    std::to_string(out.size()) + " of " + std::string(dtype_row(to).name));
  }
  if (count == 0) return {};
  if (from == to) {
    std::memcpy(out.data(), in.data(), in.size());
    return {};
  }
  DefaultFloatEnvironment environment;
  run(route_of(from, to), from, in, to, out, count);
  return {};
}

void byteswap(MutableView data, size_t unit_bytes) {
  assert(unit_bytes == 2 || unit_bytes == 4 || unit_bytes == 8);
  if (unit_bytes == 2) swap_units_16(data.data(), data.size() / 2);
  if (unit_bytes == 4) swap_units_32(data.data(), data.size() / 4);
  if (unit_bytes == 8) swap_units_64(data.data(), data.size() / 8);
}

}  // namespace shardwright
