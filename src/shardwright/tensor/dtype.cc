#include "shardwright/tensor/dtype.h"

#include <algorithm>
#include <array>
#include <string>

#include "shardwright/base/bytes.h"
#include "shardwright/base/text.h"

namespace shardwright {
namespace {

// In enum order, which is also safetensors' order (its Rust enum), so the rank in the writer's order is the row number. What safetensors has not
// comes after all that it has.
constexpr std::array<DTypeRow, 25> kTable = {{
    {DType::kBool, "BOOL", "bool", Kind::kBool, 1, 1, 0},
    {DType::kF4, "F4", "float4_e2m1fn", Kind::kFloat, 2, 1, 1},
    {DType::kF6E2M3, "F6_E2M3", "float6_e2m3fn", Kind::kFloat, 4, 3, 2},
    {DType::kF6E3M2, "F6_E3M2", "float6_e3m2fn", Kind::kFloat, 4, 3, 3},
    {DType::kU8, "U8", "uint8", Kind::kUnsigned, 1, 1, 4},
    {DType::kI8, "I8", "int8", Kind::kSigned, 1, 1, 5},
    {DType::kF8E5M2, "F8_E5M2", "float8_e5m2", Kind::kFloat, 1, 1, 6},
    {DType::kF8E4M3, "F8_E4M3", "float8_e4m3fn", Kind::kFloat, 1, 1, 7},
    {DType::kF8E8M0, "F8_E8M0", "float8_e8m0fnu", Kind::kFloat, 1, 1, 8},
    {DType::kF8E4M3FNUZ, "F8_E4M3FNUZ", "float8_e4m3fnuz", Kind::kFloat, 1, 1, 9},
    {DType::kF8E5M2FNUZ, "F8_E5M2FNUZ", "float8_e5m2fnuz", Kind::kFloat, 1, 1, 10},
    {DType::kI16, "I16", "int16", Kind::kSigned, 1, 2, 11},
    {DType::kU16, "U16", "uint16", Kind::kUnsigned, 1, 2, 12},
    {DType::kF16, "F16", "float16", Kind::kFloat, 1, 2, 13},
    {DType::kBF16, "BF16", "bfloat16", Kind::kFloat, 1, 2, 14},
    {DType::kI32, "I32", "int32", Kind::kSigned, 1, 4, 15},
    {DType::kU32, "U32", "uint32", Kind::kUnsigned, 1, 4, 16},
    {DType::kF32, "F32", "float32", Kind::kFloat, 1, 4, 17},
    {DType::kC64, "C64", "complex64", Kind::kComplex, 1, 8, 18},
    {DType::kF64, "F64", "float64", Kind::kFloat, 1, 8, 19},
    {DType::kI64, "I64", "int64", Kind::kSigned, 1, 8, 20},
    {DType::kU64, "U64", "uint64", Kind::kUnsigned, 1, 8, 21},
    {DType::kC128, "C128", "complex128", Kind::kComplex, 1, 16, 22},
    {DType::kF8E3M4, "F8_E3M4", "float8_e3m4", Kind::kFloat, 1, 1, 23},
    {DType::kF8E4M3B11FNUZ, "F8_E4M3B11FNUZ", "float8_e4m3b11fnuz", Kind::kFloat, 1, 1, 24},
}};

/// Names that people use and that do not say enough, or of types that are not here.
struct Unclear {
  std::string_view text, hint;
};
constexpr Unclear kUnclear[] = {
    {"float", "NumPy means float64 by it, PyTorch float32: write which"},
    {"fp8", "there are several: float8_e4m3fn and float8_e5m2 are the usual ones"},
    {"float8", "there are several: float8_e4m3fn and float8_e5m2 are the usual ones"},
    {"int4", "there is no integer of 4 bits: int8 is the smallest"},
    {"uint4", "there is no integer of 4 bits: uint8 is the smallest"},
};

constexpr bool rows_match_enum() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_match_enum(), "dtype_row() indexes the table by the enum's number");

struct ShortForm {
  std::string_view text;
  DType dtype;
};

constexpr ShortForm kShortForms[] = {
    {"fp64", DType::kF64},
    {"double", DType::kF64},
    {"fp32", DType::kF32},
    {"single", DType::kF32},
    {"fp16", DType::kF16},
    {"half", DType::kF16},
    {"fp4", DType::kF4},
    {"float4_e2m1fn_x2", DType::kF4},
    {"float8_e4m3", DType::kF8E4M3},
    {"fp8_e4m3", DType::kF8E4M3},
    {"fp8_e5m2", DType::kF8E5M2},
    {"e4m3", DType::kF8E4M3},
    {"e5m2", DType::kF8E5M2},
    {"e8m0", DType::kF8E8M0},
    {"bool_", DType::kBool},
    {"boolean", DType::kBool},
};

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

std::span<const DTypeRow> dtype_table() { return kTable; }

const DTypeRow& dtype_row(DType dtype) { return kTable[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeRow& row : kTable) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

Result<DType> parse_dtype(std::string_view text) {
  std::string wanted = lower_ascii(text);
  for (const DTypeRow& row : kTable) {
    if (wanted == lower_ascii(row.name) || wanted == row.numpy_name) return row.dtype;
  }
  for (const ShortForm& form : kShortForms) {
    if (wanted == form.text) return form.dtype;
  }
  auto unclear = std::ranges::find(kUnclear, wanted, &Unclear::text);
  std::string names, hint;
  std::vector<std::string> spellings;
  for (const DTypeRow& row : kTable) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
    spellings.push_back(lower_ascii(row.name));
    spellings.emplace_back(row.numpy_name);
  }
  for (const ShortForm& form : kShortForms) spellings.emplace_back(form.text);
  auto near = nearest_names(wanted, spellings, 1);
  if (unclear != std::end(kUnclear))
    hint = unclear->hint;
  else
    hint = near.empty() ? "NumPy names work too, in any case: bfloat16, float32, float8_e4m3fn"
                        : "did you mean '" + near[0] + "'?";
  return fail(Code::kInvalidArgument, "unknown dtype")
      .with_found("'" + std::string(text) + "'")
      .with_expected("one of " + names)
      .with_hint(hint);
}

std::optional<uint64_t> bytes_of_elements(DType dtype, uint64_t elements) {
  const DTypeRow& row = dtype_row(dtype);
  if (elements % row.block_elems != 0) return std::nullopt;
  return checked_mul(elements / row.block_elems, row.block_bytes);
}

// In order and without looking ahead for a zero, as safetensors does it: [huge, huge, 0] overflows, [0, huge, huge] is 0.
std::optional<uint64_t> element_count(std::span<const int64_t> shape) {
  uint64_t count = 1;
  for (int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    std::optional<uint64_t> product = checked_mul(count, static_cast<uint64_t>(extent));
    if (!product) return std::nullopt;
    count = *product;
  }
  return count;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t d = 0; d < shape.size(); ++d) out += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return out + "]";
}

}  // namespace shardwright
