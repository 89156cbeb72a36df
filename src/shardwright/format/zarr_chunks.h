/// A zarr array's chunks as pieces of a catalogue.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "shardwright/format/catalog.h"
#include "shardwright/format/zarr_metadata.h"
#include "shardwright/format/zarr_values.h"

namespace shardwright {

/// Adds zarr arrays to a catalogue under construction. Chunks lie where `values` says; shards of several chunks have their index read (all of an
/// array's in one batch), nothing else of the payload is.
class ZarrCatalog {
 public:
  struct Limits {
    uint64_t max_metadata_bytes = GiB;
    uint64_t max_pieces = 1 << 24;      ///< of all arrays together, those that are filled included
    uint64_t max_looked_for = 1 << 16;  ///< places of an array that are looked into one by one though few hold a chunk
  };
  ZarrCatalog(Store& store, CatalogBuilder& builder, const Limits& limits)
      : store_(store), builder_(builder), limits_(limits) {}

  /// Finds and parses an array's metadata. path: its name in `values`, "" for the root. zarr3_first only orders the two look-ups. nullopt: there is no
  /// such array.
  Result<std::optional<ZarrArray>> read_array(ZarrValues& values, std::string_view path, bool zarr3_first);

  /// fill_missing: a chunk that is not there holds the fill value; else it is kNotFound, with its key. Costs time and memory for chunks that are
  /// stored, not for places where none is.
  Status add(ZarrValues& values, std::string_view path, std::string_view name, const ZarrArray& array,
             bool fill_missing);

 private:
  struct Chunk {
    std::vector<int64_t> start;
    ZarrValue value;
  };
  Status add_chunk(const ZarrArray& array, std::span<const int64_t> start, std::span<const int64_t> extent,
                   const ZarrValue& value);
  Status add_fill(const ZarrArray& array, const Box& box);
  /// One array under way.
  struct Adding {
    ZarrValues& values;
    std::string_view path, name;
    const ZarrArray& array;
    bool fill_missing;
    std::vector<int64_t> counts;  ///< chunks per dimension
    std::vector<Chunk> shards{};
  };
  Status add_all(Adding& adding);
  Status add_sparse(Adding& adding, std::vector<uint64_t> stored);
  Status add_stored(Adding& adding, std::span<const int64_t> start, ZarrValue value);
  Status add_shards(ZarrValues& values, std::string_view path, const ZarrArray& array, std::span<const Chunk> shards,
                    bool fill_missing);
  Status add_shard(const ZarrArray& array, const Chunk& shard, View index, bool fill_missing, const std::string& shown);
  Result<ObjectId> object_of(const std::string& key);
  Status charge(uint64_t pieces);

  Store& store_;
  CatalogBuilder& builder_;
  const Limits limits_;
  uint64_t pieces_ = 0;
  std::unordered_map<std::string, ObjectId> objects_;
  std::string last_key_;
  ObjectId last_object_ = 0;
};

}  // namespace shardwright
