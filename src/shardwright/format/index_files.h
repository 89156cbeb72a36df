/// A sharded set by its index alone: which files hold what, and which of them are there. For downloads, of which the index comes first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwright/store/store.h"

namespace shardwright {

struct IndexFiles {
  struct Entry {
    std::string name;             ///< of a tensor; with `groups` of a group of variables, "layers/dense/vars"
    std::vector<uint32_t> files;  ///< in `files`
  };
  std::vector<std::string> files;  ///< in order of first appearance; names beside the index, checked to stay there
  std::vector<Entry> entries;
  bool groups = false;  ///< Keras's index
};

/// Reads the index `key` of at most `cap` bytes: X.weights.json is Keras's, X.bin.index.json the hub's of .bin files, any other of safetensors. Shards need not be there.
/// Errors: kNotFound, kResourceExhausted (over the cap), kCorrupt (no index, names that leave the directory).
Result<IndexFiles> read_index_files(Store& store, const std::string& key, uint64_t cap);

/// Whether a shard is there, by its size and its first bytes; it may be whole and still hold wrong bytes.
struct ShardState {
  enum Kind : uint8_t { kMissing, kCutShort, kWhole, kWrong };
  Kind kind = kMissing;
  uint64_t size_bytes = 0;             ///< of what is there
  uint64_t expected_bytes = kUnknown;  ///< as its header says; kUnknown when too little of that is there
  std::string problem{};               ///< kWrong: what it is instead
};
/// key: X.safetensors, X.bin, or an HDF5 file. header_cap: bytes of a header that are read at most. Errors: of the store only.
Result<ShardState> shard_state(Store& store, const std::string& key, uint64_t header_cap);

}  // namespace shardwright
