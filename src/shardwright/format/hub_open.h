/// A checkpoint as the hub lays it out, in one file or in shards: the index against what the shards hold, both ways. Private to the formats that lie so.
#pragma once

#include <functional>
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

/// What a format adds: tensors of its files into a catalogue. Order of calls: expect_notes, add_files, finish.
class HubFill {
 public:
  virtual ~HubFill() = default;
  CatalogBuilder builder;
  /// Metadata of the index, without total_size.
  virtual void expect_notes(const Json& metadata) = 0;
  /// Adds all files in order, each an object of its own. seen: each tensor of file `index`; done: how that file went, and its error ends it.
  using Seen = std::function<void(size_t index, std::string_view name, TensorId id)>;
  using Done = std::function<Status(size_t index, Status status)>;
  virtual Status add_files(std::span<const std::string> keys, const Seen& seen, const Done& done) = 0;
  virtual Status finish() = 0;
};

/// A single file; side files too when it stands for its directory.
using OpenHubFile = Result<Catalog> (*)(Store& store, const std::string& key, bool directory,
                                        const OpenOptions& options);

/// What OpenHubFile ends with: the catalogue of the filled `key`, with side files where it stands for its directory; errors name the file.
Result<Catalog> build_hub_file(HubFill& fill, Store& store, const std::string& key, bool directory);

/// Format::open. fill: empty yet. Errors: kNotFound naming all missing shards; kCorrupt; with findings, all that is wrong is collected and what can be opened is.
Result<Catalog> open_hub(Store& store, std::string_view at, const HubKind& kind, HubFill& fill, OpenHubFile open_file,
                         const OpenOptions& options);

}  // namespace shardwright
