/// What zarr 2 and 3 say of an array: JSON text to a structure. Pure; nothing is trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/json.h"
#include "shardwright/base/result.h"
#include "shardwright/codec/codec.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

inline constexpr std::string_view kZarr2Array = ".zarray", kZarr3Node = "zarr.json";

struct ZarrArray {
  std::vector<int64_t> shape;
  std::vector<int64_t>
      chunk;  ///< extents of what one key holds: a chunk, or a shard; at the edge of the array they are not clipped
  std::vector<int64_t> inner;  ///< of the chunks within a shard; empty: the key holds one chunk
  DType dtype = DType::kU8;
  std::string stored_as;  ///< "int4": its type where that is none of ours, one value a byte; else empty
  bool big_endian = false;
  std::vector<CodecSpec> chain;   ///< of a chunk, as encoding applies it; empty: raw
  std::vector<uint64_t> order{};  ///< raw chunks: dimensions as they lie, the slowest first; empty: as they are
  Bytes fill;                     ///< one element, in the byte order of the chunks
  bool zarr3 = false;
  std::string key_prefix;     ///< "c/" or "": before the first index
  std::string key_of_scalar;  ///< "0" or "c"
  char separator = '.';
  bool index_first = false, index_has_sum = true;  ///< shards: where their index lies, and whether a CRC-32C follows it

  /// A shard of one chunk is a codec, which takes nothing but that chunk and its index; this makes it one whose index is read beforehand: other
  /// bytes may lie in it, and the chunk may be missing.
  void look_into_shards();
  uint64_t chunk_elements() const;  ///< of one encoded chunk: `inner` where there is one
  /// Where a chunk lies below the array: "0.1", "c/0/1".
  std::string key_of(std::span<const int64_t> index) const;
  /// The way back: which chunk of a grid a key holds, in C order; nullopt for keys that are none.
  std::optional<uint64_t> index_of(std::string_view key, std::span<const int64_t> counts) const;
};

/// The message of parse_zarr3_array for a node that is a group.
inline constexpr std::string_view kZarrNoArray = "zarr array: its node is no array";
/// Text of `.zarray`, or of a zarr.json whose node is an array. Errors: kCorrupt for what contradicts the format, kUnsupported for types and
/// codecs that are not known, with their names.
Result<ZarrArray> parse_zarr2_array(std::string_view text);
Result<ZarrArray> parse_zarr3_array(std::string_view text);

/// How zarr spells a type: numpy's "<f4", or the bare name of types that numpy does not have. zarr3: "float32". "" for types it has not.
std::string zarr_type_name(DType dtype, bool zarr3);

/// Text as Orbax writes it. codecs: "zstd" at `level`, or none.
struct ZarrWriteOptions {
  bool zarr3 = false, zstd = false;
  int level = 1;
};
std::string zarr_array_text(std::span<const int64_t> shape, std::span<const int64_t> chunk, std::string_view type_name,
                            const ZarrWriteOptions& options);

namespace detail {
/// What both versions share. A type: dtype, byte order and stored_as of `array` are set. fill: JSON to one element.
Status set_zarr_type(ZarrArray& array, std::string_view name);
Status set_zarr_fill(ZarrArray& array, const Json& value);
/// One bytes-to-bytes codec, zarr 2's ("id") or 3's ("name" and "configuration").
Result<CodecSpec> parse_zarr_codec(std::string_view name, const Json& settings, uint64_t element_bytes);
/// Extents, one per dimension: at least `least` each, their product within bounds.
Result<std::vector<int64_t>> parse_zarr_extents(const Json& value, int64_t least, const char* what);
/// Puts a transposition where it belongs: before the chain, or into `order` when there is none.
void set_zarr_order(ZarrArray& array, std::vector<uint64_t> order, std::span<const int64_t> chunk);
}  // namespace detail

}  // namespace shardwright
