#include "shardwright/tensor/convert.h"

#include <algorithm>
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

template <class Format>
SHARDWRIGHT_INLINE void lookup_loop(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  constexpr size_t kBlockBytes = kBlock<Format> * Format::kBits / 8;
  for (size_t i = 0; i < count / kBlock<Format>; ++i) {
    uint32_t packed = 0;
    std::memcpy(&packed, in + i * kBlockBytes, kBlockBytes);
    for (size_t j = 0; j < kBlock<Format>; ++j) {
      store(out, i * kBlock<Format> + j, kValues<Format>[(packed >> (j * Format::kBits)) & (Format::kSign * 2 - 1)]);
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
SHARDWRIGHT_KERNEL(f32_to_e2m3, narrow_loop<F6E2M3Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e3m2, narrow_loop<F6E3M2Format, F32Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f32_to_e2m1, narrow_loop<F4Format, F32Traits>(in, out, count))

SHARDWRIGHT_KERNEL(f64_to_f16, narrow_loop<F16Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_bf16, narrow_loop<BF16Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e5m2, narrow_loop<F8E5M2Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e4m3, narrow_loop<F8E4M3Format, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e4m3fnuz, narrow_loop<F8E4M3FNUZFormat, F64Traits>(in, out, count))
SHARDWRIGHT_KERNEL(f64_to_e5m2fnuz, narrow_loop<F8E5M2FNUZFormat, F64Traits>(in, out, count))
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

template <class Format>
void small_to_f32(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  lookup_loop<Format>(in, out, count);
}

/// How a type reaches and leaves the two types that values are computed in; every step to F32 is exact.
struct Row {
  DType dtype;
  Kernel to_f32, from_f32, from_f64;
};
const Row kRows[] = {
    {DType::kF64, nullptr, f32_to_f64, nullptr},
    {DType::kF32, nullptr, nullptr, f64_to_f32},
    {DType::kF16, f16_to_f32, f32_to_f16, f64_to_f16},
    {DType::kBF16, bf16_to_f32, f32_to_bf16, f64_to_bf16},
    {DType::kF8E5M2, small_to_f32<F8E5M2Format>, f32_to_e5m2, f64_to_e5m2},
    {DType::kF8E4M3, small_to_f32<F8E4M3Format>, f32_to_e4m3, f64_to_e4m3},
    {DType::kF8E4M3FNUZ, small_to_f32<F8E4M3FNUZFormat>, f32_to_e4m3fnuz, f64_to_e4m3fnuz},
    {DType::kF8E5M2FNUZ, small_to_f32<F8E5M2FNUZFormat>, f32_to_e5m2fnuz, f64_to_e5m2fnuz},
    {DType::kF6E2M3, small_to_f32<F6E2M3Format>, f32_to_e2m3, f64_to_e2m3},
    {DType::kF6E3M2, small_to_f32<F6E3M2Format>, f32_to_e3m2, f64_to_e3m2},
    {DType::kF4, small_to_f32<F4Format>, f32_to_e2m1, f64_to_e2m1},
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
  if (from == DType::kBF16 && to == DType::kF16) return {bf16_to_f16, nullptr};
  if (from == DType::kF16 && to == DType::kBF16) return {f16_to_bf16, nullptr};
  if (from == DType::kF16 && to == DType::kF64) return {f16_to_f64, nullptr};
  if (from == DType::kF64) return {row_of(to)->from_f64, nullptr};
  if (from == DType::kF32) return {row_of(to)->from_f32, nullptr};
  if (to == DType::kF32) return {row_of(from)->to_f32, nullptr};
  return {row_of(from)->to_f32, row_of(to)->from_f32};
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
