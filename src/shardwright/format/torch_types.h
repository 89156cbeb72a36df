/// Names of PyTorch's element types, as its pickles write them. Private to the torch format.
#pragma once

#include <optional>
#include <string_view>

#include "shardwright/tensor/dtype.h"

namespace shardwright {

inline constexpr size_t kMostTorchDimensions = 64;  // of a tensor; in a pickle one tuple may be the shape of many

/// A class of storage: `torch.FloatStorage`. Untyped ones count bytes.
struct TorchStorageClass {
  std::string_view name;
  uint32_t element_bytes;
  DType dtype;
};
/// nullptr for other names.
const TorchStorageClass* torch_storage_class(std::string_view name);
/// The class that files of tensors of this type name; nullptr where torch has none, and stores bytes without a type.
const TorchStorageClass* torch_storage_class(DType dtype);

/// "bfloat16" of `torch.bfloat16`. nullopt for types that are not in our table.
std::optional<DType> torch_dtype(std::string_view name);
/// "" for types that torch does not have.
std::string_view torch_dtype_name(DType dtype);

}  // namespace shardwright
