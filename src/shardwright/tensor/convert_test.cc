#include "shardwright/tensor/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <random>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace shardwright {
namespace {

template <class T>
Bytes bytes_from(std::initializer_list<T> values) {
  Bytes out;
  for (T value : values) append_le(out, value);
  return out;
}

Bytes raw(std::initializer_list<int> values) {
  Bytes out;
  for (int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

bool is_convertible_float(DType dtype) { return dtype_row(dtype).kind == Kind::kFloat && dtype != DType::kF8E8M0; }

TEST(CanConvert, FloatsAmongThemselvesAndIdentity) {
  for (const DTypeRow& from : dtype_table()) {
    for (const DTypeRow& to : dtype_table()) {
      bool expected = from.dtype == to.dtype || (is_convertible_float(from.dtype) && is_convertible_float(to.dtype));
      EXPECT_EQ(can_convert(from.dtype, to.dtype), expected) << from.name << " to " << to.name;
    }
  }
}

TEST(Convert, RefusesPairsWithoutARow) {
  Bytes in(8), out(8);
  Status status = convert(DType::kI64, in, DType::kF64, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_NE(status.error().message.find("I64 to F64"), std::string::npos);
}

TEST(Convert, RefusesBuffersThatDiffer) {
  Bytes in(8), out(3);
  EXPECT_EQ(convert(DType::kF32, in, DType::kF16, out).error().code, Code::kInternal);
  Bytes three(12);  // 3 elements are no whole block of F4
  EXPECT_EQ(convert(DType::kF32, three, DType::kF4, MutableView(out).first(2)).error().code, Code::kInternal);
}

TEST(Convert, NothingToDo) {
  EXPECT_TRUE(convert(DType::kF32, {}, DType::kBF16, {}).ok());
  EXPECT_TRUE(convert(DType::kU8, {}, DType::kU8, {}).ok());
}

TEST(Convert, IdentityForEveryType) {
  Bytes in(48);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 41 + 7);
  for (const DTypeRow& row : dtype_table()) {
    Bytes out(in.size());
    ASSERT_TRUE(convert(row.dtype, in, row.dtype, out).ok()) << row.name;
    EXPECT_EQ(out, in) << row.name;
  }
}

// 1 + 2^-8 + 2^-30 lies above the tie between 1 and 1 + 2^-7, but on it once rounded to F32.
TEST(Convert, RoundsF64ToBF16Once) {
  Bytes in = bytes_from({1.0 + 0x1p-8 + 0x1p-30}), out(2);
  ASSERT_TRUE(convert(DType::kF64, in, DType::kBF16, out).ok());
  EXPECT_EQ(load_le<uint16_t>(out), 0x3F81);
}

TEST(Convert, PacksLowBitsFirst) {
  // 0.5 is code 1, 1.0 code 2, 6.0 code 7, -6.0 code 15 in F4; in F6_E2M3 they are 4, 8, 28 and 60.
  Bytes in = bytes_from({0.5f, 1.0f, 6.0f, -6.0f}), nibbles(2), six(3);
  ASSERT_TRUE(convert(DType::kF32, in, DType::kF4, nibbles).ok());
  EXPECT_EQ(nibbles, raw({0x21, 0xF7}));
  ASSERT_TRUE(convert(DType::kF32, in, DType::kF6E2M3, six).ok());
  const uint32_t block = 4 | 8 << 6 | 28 << 12 | 60u << 18;
  EXPECT_EQ(six, raw({block & 0xFF, block >> 8 & 0xFF, block >> 16 & 0xFF}));
}

// The caller's flags (torch.set_flush_denormal, fesetround) must neither reach the values nor be lost.
TEST(Convert, IgnoresAndKeepsTheCallersFloatModes) {
  const float tiny = std::bit_cast<float>(uint32_t{1});
  Bytes in = bytes_from({tiny, 1.0f}), wide(16), back(8);
  Bytes third = bytes_from({1.0 / 3.0, -1.0 / 3.0}), rounded(8);
  Bytes tie = bytes_from({0x1p-25f, -0x1p-25f}), halves(4);  // half of the smallest F16
  std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // flush to zero, denormals are zero
#endif
  Status widened = convert(DType::kF32, in, DType::kF64, wide);
  Status narrowed = convert(DType::kF64, wide, DType::kF32, back);
  Status third_done = convert(DType::kF64, third, DType::kF32, rounded);
  Status tie_done = convert(DType::kF32, tie, DType::kF16, halves);
  const int mode = std::fegetround();
#if defined(__SSE2__)
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040u);
  _mm_setcsr(saved);
#endif
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(mode, FE_UPWARD);
  ASSERT_TRUE(widened.ok() && narrowed.ok() && third_done.ok() && tie_done.ok());
  EXPECT_EQ(load_le<uint64_t>(wide), 0x36A0000000000000u);  // 2^-149
  EXPECT_EQ(back, in);
  EXPECT_EQ(load_le<uint32_t>(rounded), 0x3EAAAAABu);
  EXPECT_EQ(load_le<uint32_t>(View(rounded).subspan(4)), 0xBEAAAAABu);
  EXPECT_EQ(halves, bytes_from<uint16_t>({0x0000, 0x8000}));
}

// Neither where the input is cut nor how it is aligned may show in the output.
TEST(Convert, DoesNotDependOnCutsOrAlignment) {
  const uint32_t seed = 4711;
  std::mt19937_64 random(seed);
  const uint64_t elements = 3 * 4096;
  for (const DTypeRow& from : dtype_table()) {
    for (const DTypeRow& to : dtype_table()) {
      if (!is_convertible_float(from.dtype) || !is_convertible_float(to.dtype)) continue;
      SCOPED_TRACE("seed " + std::to_string(seed) + " " + std::string(from.name) + " to " + std::string(to.name));
      Bytes in(*bytes_of_elements(from.dtype, elements)), whole(*bytes_of_elements(to.dtype, elements));
      for (std::byte& b : in) b = static_cast<std::byte>(random());
      ASSERT_TRUE(convert(from.dtype, in, to.dtype, whole).ok());
      for (uint64_t done = 0; done < elements;) {
        const uint64_t step = std::min(elements - done, 4 * (1 + random() % (random() % 2 == 0 ? 8 : 1200)));
        const uint64_t at = *bytes_of_elements(from.dtype, done), to_at = *bytes_of_elements(to.dtype, done);
        Bytes part(1 + *bytes_of_elements(from.dtype, step)), out(3 + *bytes_of_elements(to.dtype, step));
        std::copy_n(in.begin() + static_cast<ptrdiff_t>(at), part.size() - 1, part.begin() + 1);
        ASSERT_TRUE(convert(from.dtype, View(part).subspan(1), to.dtype, MutableView(out).subspan(3)).ok());
        ASSERT_TRUE(std::equal(out.begin() + 3, out.end(), whole.begin() + static_cast<ptrdiff_t>(to_at)))
            << "elements " << done << " to " << done + step;
        done += step;
      }
    }
  }
}

TEST(Byteswap, ReversesEveryUnit) {
  for (size_t unit : {2, 4, 8}) {
    for (size_t units : {0, 1, 7, 100}) {
      Bytes data(unit * units), expected(unit * units);
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37 + 11);
      for (size_t i = 0; i < data.size(); ++i) expected[i] = data[i / unit * unit + unit - 1 - i % unit];
      byteswap(data, unit);
      EXPECT_EQ(data, expected) << unit << " bytes, " << units << " units";
    }
  }
}

TEST(SwapUnit, FollowsTheElement) {
  EXPECT_EQ(swap_unit_bytes(DType::kU8), 1u);
  EXPECT_EQ(swap_unit_bytes(DType::kF6E2M3), 1u);
  EXPECT_EQ(swap_unit_bytes(DType::kBF16), 2u);
  EXPECT_EQ(swap_unit_bytes(DType::kI32), 4u);
  EXPECT_EQ(swap_unit_bytes(DType::kC64), 4u);
  EXPECT_EQ(swap_unit_bytes(DType::kU64), 8u);
}

// Values by hand from each type's definition.
TEST(ElementValue, EveryType) {
  EXPECT_EQ(element_value(DType::kBool, raw({0, 1}), 1), 1);
  EXPECT_EQ(element_value(DType::kU8, raw({9, 255}), 1), 255);
  EXPECT_EQ(element_value(DType::kI8, raw({255}), 0), -1);
  EXPECT_EQ(element_value(DType::kI16, bytes_from<int16_t>({1, -2}), 1), -2);
  EXPECT_EQ(element_value(DType::kU16, bytes_from<uint16_t>({65535}), 0), 65535);
  EXPECT_EQ(element_value(DType::kI32, bytes_from<int32_t>({-70000}), 0), -70000);
  EXPECT_EQ(element_value(DType::kU32, bytes_from<uint32_t>({4000000000u}), 0), 4e9);
  EXPECT_EQ(element_value(DType::kI64, bytes_from<int64_t>({-5}), 0), -5);
  EXPECT_EQ(element_value(DType::kU64, bytes_from<uint64_t>({1ull << 63}), 0), 0x1p63);
  EXPECT_EQ(element_value(DType::kF64, bytes_from({0.1}), 0), 0.1);
  EXPECT_EQ(element_value(DType::kF32, bytes_from({0.1f}), 0), 0.1f);
  EXPECT_EQ(element_value(DType::kF16, bytes_from<uint16_t>({0x3C00, 0x0001}), 1), 0x1p-24);
  EXPECT_EQ(element_value(DType::kBF16, bytes_from<uint16_t>({0xC040}), 0), -3);
  EXPECT_EQ(element_value(DType::kF8E4M3, raw({0x7E}), 0), 448);
  EXPECT_EQ(element_value(DType::kF8E5M2, raw({0x7B}), 0), 57344);
  EXPECT_EQ(element_value(DType::kF8E4M3FNUZ, raw({0x7F}), 0), 240);
  EXPECT_EQ(element_value(DType::kF8E5M2FNUZ, raw({0x7F}), 0), 57344);
  EXPECT_TRUE(std::isnan(element_value(DType::kF8E4M3FNUZ, raw({0x80}), 0)));
  EXPECT_EQ(element_value(DType::kF8E8M0, raw({0}), 0), 0x1p-127);
  EXPECT_EQ(element_value(DType::kF8E8M0, raw({127}), 0), 1);
  EXPECT_TRUE(std::isnan(element_value(DType::kF8E8M0, raw({255}), 0)));
}

TEST(ElementValue, ComplexParts) {
  Bytes data = bytes_from({1.0f, 2.0f, 3.0f, -4.0f});
  EXPECT_EQ(element_value(DType::kC64, data, 1), 3);
  EXPECT_EQ(element_value(DType::kC64, data, 1, 1), -4);
}

TEST(ElementValue, PackedElementsAtEveryPlace) {
  EXPECT_EQ(element_value(DType::kF4, raw({0x21, 0xF7}), 0), 0.5);
  EXPECT_EQ(element_value(DType::kF4, raw({0x21, 0xF7}), 1), 1);
  EXPECT_EQ(element_value(DType::kF4, raw({0x21, 0xF7}), 3), -6);
  Bytes values = bytes_from({0.5f, -1.0f, 6.0f, 7.5f, 0.125f, 2.0f, -0.25f, 3.0f});
  for (DType dtype : {DType::kF6E2M3, DType::kF6E3M2}) {
    Bytes in = values;
    if (dtype == DType::kF6E3M2) in = bytes_from({0.5f, -1.0f, 6.0f, 28.0f, 0.0625f, 2.0f, -0.25f, 3.0f});
    Bytes data(6);
    ASSERT_TRUE(convert(DType::kF32, in, dtype, data).ok());
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(element_value(dtype, data, i), element_value(DType::kF32, in, i)) << i;
  }
}

}  // namespace
}  // namespace shardwright
