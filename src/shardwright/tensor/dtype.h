/// Element types: one table row per type, everything else looks up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright {

/// Row numbers are on disk (manifests, serialized catalogues): append only, never renumber.
enum class DType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
  kC128,
  kF8E3M4,
  kF8E4M3B11FNUZ,
};

enum class Kind : uint8_t { kBool, kSigned, kUnsigned, kFloat, kComplex };

/// n elements take ceil(n / block_elems) * block_bytes: F32 {1,4}, F4 {2,1}, F6 {4,3}; later block formats fit too: Q4_K {256,144}.
/// A run of elements may start and end only at multiples of block_elems.
struct DTypeRow {
  DType dtype;
  std::string_view name;        ///< as safetensors spells it: "BF16"; those it has not (from C128 on) likewise
  std::string_view numpy_name;  ///< NumPy's or ml_dtypes' name: "bfloat16"
  Kind kind;
  uint16_t block_elems, block_bytes;
  uint8_t alignment_order;  ///< rank in safetensors' writer order, low to high
};

std::span<const DTypeRow> dtype_table();
const DTypeRow& dtype_row(DType dtype);
/// Exact safetensors spelling. nullopt for unknown names.
std::optional<DType> dtype_from_name(std::string_view name);
/// What users type: safetensors or NumPy spelling or a short form ("bf16", "bfloat16", "fp16", "half"), any case.
Result<DType> parse_dtype(std::string_view text);

/// Bytes of `elements` elements. nullopt on overflow, or when elements is no multiple of the block.
std::optional<uint64_t> bytes_of_elements(DType dtype, uint64_t elements);
/// Product of the extents, 1 for rank 0. nullopt on overflow of 64 bits or a negative extent.
std::optional<uint64_t> element_count(std::span<const int64_t> shape);
/// "[2, 3]".
std::string shape_text(std::span<const int64_t> shape);

}  // namespace shardwright
