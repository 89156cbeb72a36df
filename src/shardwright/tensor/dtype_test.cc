#include "shardwright/tensor/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace shardwright {
namespace {

TEST(DTypeTable, FollowsSafetensorsOrderAndSizes) {
  // Names and bits from safetensors 0.8's `Dtype`, low to high.
  const std::pair<std::string_view, int> expected[] = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
  ASSERT_EQ(dtype_table().size(), std::size(expected) + 3);  // and those it has not
  for (size_t i = 0; i < std::size(expected); ++i) {
    const DTypeRow& row = dtype_table()[i];
    EXPECT_EQ(row.name, expected[i].first);
    EXPECT_EQ(row.block_bytes * 8, expected[i].second * row.block_elems) << row.name;
    EXPECT_EQ(row.alignment_order, i) << row.name;
    EXPECT_EQ(&dtype_row(row.dtype), &row);
    EXPECT_EQ(dtype_from_name(row.name), row.dtype);
  }
}

TEST(DTypeTable, NumbersOnDiskStay) {
  EXPECT_EQ(static_cast<int>(DType::kBool), 0);
  EXPECT_EQ(static_cast<int>(DType::kF8E8M0), 8);
  EXPECT_EQ(static_cast<int>(DType::kBF16), 14);
  EXPECT_EQ(static_cast<int>(DType::kF32), 17);
  EXPECT_EQ(static_cast<int>(DType::kU64), 21);
  EXPECT_EQ(static_cast<int>(DType::kC128), 22);
  EXPECT_EQ(static_cast<int>(DType::kF8E4M3B11FNUZ), 24);
}

TEST(DTypeTable, NumpyNamesAreDistinct) {
  std::set<std::string_view> names;
  for (const DTypeRow& row : dtype_table()) EXPECT_TRUE(names.insert(row.numpy_name).second) << row.numpy_name;
}

TEST(DTypeNames, SafetensorsSpellingIsExact) {
  EXPECT_EQ(dtype_from_name("bf16"), std::nullopt);
  EXPECT_EQ(dtype_from_name("bfloat16"), std::nullopt);
  EXPECT_EQ(dtype_from_name("BF16 "), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(ParseDtype, TakesWhatUsersType) {
  for (const DTypeRow& row : dtype_table()) {
    EXPECT_EQ(parse_dtype(row.name).value(), row.dtype);
    EXPECT_EQ(parse_dtype(row.numpy_name).value(), row.dtype);
  }
  EXPECT_EQ(parse_dtype("bf16").value(), DType::kBF16);
  EXPECT_EQ(parse_dtype("BFloat16").value(), DType::kBF16);
  EXPECT_EQ(parse_dtype("fp16").value(), DType::kF16);
  EXPECT_EQ(parse_dtype("half").value(), DType::kF16);
  EXPECT_EQ(parse_dtype("Double").value(), DType::kF64);
  EXPECT_EQ(parse_dtype("fp8_e4m3").value(), DType::kF8E4M3);
}

TEST(ParseDtype, RefusesUnknownAndAmbiguous) {
  for (std::string_view text : {"", "float", "fp8", "bf17", "F32 ", "int4"}) {
    Result<DType> parsed = parse_dtype(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_EQ(parsed.error().found, "'" + std::string(text) + "'");
    EXPECT_NE(parsed.error().expected.find("BF16"), std::string::npos);
  }
}

TEST(ParseDtype, SaysWhatMayHaveBeenMeant) {
  auto hint = [](std::string_view text) { return parse_dtype(text).error().hint; };
  EXPECT_EQ(hint("bf17"), "did you mean 'bf16'?");
  EXPECT_EQ(hint("bfloat6"), "did you mean 'bfloat16'?");
  EXPECT_EQ(hint("Float32x"), "did you mean 'float32'?");
  EXPECT_NE(hint("float").find("float32"), std::string::npos);
  EXPECT_NE(hint("fp8").find("float8_e5m2"), std::string::npos);
  EXPECT_EQ(hint("tensor").find("did you mean"), std::string::npos);
}

TEST(BytesOfElements, CountsBlocks) {
  EXPECT_EQ(bytes_of_elements(DType::kF32, 3), 12u);
  EXPECT_EQ(bytes_of_elements(DType::kC64, 3), 24u);
  EXPECT_EQ(bytes_of_elements(DType::kF4, 4), 2u);
  EXPECT_EQ(bytes_of_elements(DType::kF6E3M2, 8), 6u);
  EXPECT_EQ(bytes_of_elements(DType::kF6E3M2, 0), 0u);
}

TEST(BytesOfElements, RefusesPartBlocksAndOverflow) {
  EXPECT_EQ(bytes_of_elements(DType::kF4, 3), std::nullopt);
  EXPECT_EQ(bytes_of_elements(DType::kF6E2M3, 2), std::nullopt);
  EXPECT_EQ(bytes_of_elements(DType::kF64, 1ull << 61), std::nullopt);
  EXPECT_EQ(bytes_of_elements(DType::kF64, (1ull << 61) - 1), (1ull << 61) * 8 - 8);
  EXPECT_EQ(bytes_of_elements(DType::kU8, ~0ull), ~0ull);
}

TEST(ElementCount, ProductOrNothing) {
  using Shape = std::vector<int64_t>;
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(element_count(Shape{}), 1u);
  EXPECT_EQ(element_count(Shape{2, 3, 4}), 24u);
  EXPECT_EQ(element_count(Shape{2, 0, 4}), 0u);
  EXPECT_EQ(element_count(Shape{huge, 2}), static_cast<uint64_t>(huge) * 2);
  EXPECT_EQ(element_count(Shape{huge, 3}), std::nullopt);
  EXPECT_EQ(element_count(Shape{-1}), std::nullopt);
  EXPECT_EQ(element_count(Shape{0, -1}), std::nullopt);
  // As safetensors 0.8: overflow depends on the order.
  EXPECT_EQ(element_count(Shape{huge, huge, 0}), std::nullopt);
  EXPECT_EQ(element_count(Shape{0, huge, huge}), 0u);
}

TEST(ShapeText, Brackets) {
  EXPECT_EQ(shape_text(std::vector<int64_t>{}), "[]");
  EXPECT_EQ(shape_text(std::vector<int64_t>{2, 3}), "[2, 3]");
}

}  // namespace
}  // namespace shardwright
