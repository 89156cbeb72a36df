#include "shardwright/format/torch_types.h"

#include <algorithm>
#include <iterator>

namespace shardwright {
namespace {

// Those of one DType that come first are the ones that are written.
constexpr TorchStorageClass kClasses[] = {
    {"DoubleStorage", 8, DType::kF64},       {"FloatStorage", 4, DType::kF32},
    {"HalfStorage", 2, DType::kF16},         {"BFloat16Storage", 2, DType::kBF16},
    {"LongStorage", 8, DType::kI64},         {"IntStorage", 4, DType::kI32},
    {"ShortStorage", 2, DType::kI16},        {"CharStorage", 1, DType::kI8},
    {"ByteStorage", 1, DType::kU8},          {"BoolStorage", 1, DType::kBool},
    {"ComplexFloatStorage", 8, DType::kC64}, {"ComplexDoubleStorage", 16, DType::kC128},
    {"QInt8Storage", 1, DType::kI8},         {"QUInt8Storage", 1, DType::kU8},
    {"QInt32Storage", 4, DType::kI32},       {"UntypedStorage", 1, DType::kU8},
};

/// Where torch's name of a type is not NumPy's.
struct Name {
  std::string_view name;
  DType dtype;
};
constexpr Name kOwnNames[] = {{"float4_e2m1fn_x2", DType::kF4}};
constexpr DType kForeign[] = {DType::kF6E2M3, DType::kF6E3M2, DType::kF8E3M4, DType::kF8E4M3B11FNUZ};

}  // namespace

const TorchStorageClass* torch_storage_class(std::string_view name) {
  auto at = std::ranges::find(kClasses, name, &TorchStorageClass::name);
  return at == std::end(kClasses) ? nullptr : &*at;
}

const TorchStorageClass* torch_storage_class(DType dtype) {
  auto at = std::ranges::find(kClasses, dtype, &TorchStorageClass::dtype);
  return at == std::end(kClasses) ? nullptr : &*at;
}

std::optional<DType> torch_dtype(std::string_view name) {
  for (const auto& own : kOwnNames)
    if (own.name == name) return own.dtype;
  for (const auto& row : dtype_table())
    if (row.numpy_name == name && torch_dtype_name(row.dtype) == name) return row.dtype;
  return std::nullopt;
}

std::string_view torch_dtype_name(DType dtype) {
  for (const auto& own : kOwnNames)
    if (own.dtype == dtype) return own.name;
  bool foreign = std::ranges::find(kForeign, dtype) != std::end(kForeign);
  return foreign ? std::string_view() : dtype_row(dtype).numpy_name;
}

}  // namespace shardwright
