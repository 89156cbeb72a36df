/// A sharded checkpoint: the index against the headers of its shards, both ways. Private to safetensors_format.cc.
#pragma once

#include <optional>

#include "shardwright/base/json.h"
#include "shardwright/format/format.h"
#include "shardwright/format/hub_set.h"

namespace shardwright {

/// An index reduced to what opening needs: 24 bytes per tensor, whatever its name.
class HubLines {
 public:
  struct Line {
    uint64_t hash
        [2];  ///< of the name; 128 bits: two names that share it are not expected, and would at worst hide a wrong line
    uint32_t shard;
    TensorId id;
    bool operator<(const Line& other) const {
      return std::tie(hash[0], hash[1]) < std::tie(other.hash[0], other.hash[1]);
    }
    bool same_name(const Line& other) const { return hash[0] == other.hash[0] && hash[1] == other.hash[1]; }
  };
  static Line line_of(std::string_view name, uint32_t shard, TensorId id);
  /// Reads and parses. Names given twice go to options.report. Errors: kCorrupt, kResourceExhausted, as parse_hub_index.
  static Result<HubLines> read(Store& store, const HubSet& set, const OpenOptions& options);

  std::vector<Line> lines;          ///< sorted by hash
  std::vector<std::string> shards;  ///< keys, sorted; Line::shard counts here
  std::vector<bool> present;        ///< per shard
  Json metadata;
  uint64_t name_bytes = 0;
  /// Missing shards by name, relative to the index; empty when all are there.
  std::vector<std::string> missing(const HubSet& set) const;
};

/// Errors: kNotFound naming all missing shards; kCorrupt; with findings, all that is wrong is collected and what can be opened is.
Result<Catalog> open_hub_set(Store& store, const HubSet& set, const HubLines& index, bool directory,
                             const OpenOptions& options);

}  // namespace shardwright
