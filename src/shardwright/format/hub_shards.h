/// How a checkpoint lies in files on the hub: their names, and which tensor goes into which shard, by huggingface_hub's rule, exactly.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/bytes.h"

namespace shardwright {

/// Names of the files of one format.
struct HubKind {
  std::string_view format;        ///< row of format_table
  std::string_view ending;        ///< of a file and of a shard
  std::string_view index_ending;  ///< of an index: that, and ".index.json"
  std::string_view stem;          ///< in a directory: "model.safetensors"
  bool total_is_exact;            ///< every writer counts total_size alike
  std::string file() const { return std::string(stem) + std::string(ending); }
  std::string index() const { return std::string(stem) + std::string(index_ending); }
};
inline constexpr HubKind kSafetensorsHub = {"safetensors", ".safetensors", ".safetensors.index.json", "model", true};
inline constexpr HubKind kTorchHub = {"torch", ".bin", ".bin.index.json", "pytorch_model", false};

inline constexpr uint32_t kNoStorage = ~0u;

struct ShardItem {
  uint64_t bytes = 0;
  uint32_t storage = kNoStorage;  ///< items of one storage share their bytes
  uint32_t header_bytes = 0;      ///< at most so much of the shard's header
};

struct ShardLimits {
  uint64_t bytes = kUnknown;         ///< of tensor data; kUnknown: no limit
  uint64_t header_bytes = kUnknown;  ///< of header; the hub knows no such limit
};

struct ShardAssignment {
  std::vector<std::vector<uint32_t>> shards;  ///< indexes of items, in the order of the hub's index
  uint64_t total_bytes = 0;                   ///< every storage once
  std::vector<uint32_t> oversized;            ///< items larger than the limit, each alone in its shard
  bool header_capped = false;                 ///< the header limit made a cut that the hub would not make
};

/// Greedy, in the order given: an item that would overfill the current shard begins a new one; exactly full is not overfull. An item over the
/// limit becomes a shard at once, before the one that is being filled. Later items of a known storage count nothing and join, at its end, the
/// shard of the first. Empty items never begin a shard of their own. No items: no shards.
ShardAssignment assign_shards(std::span<const ShardItem> items, const ShardLimits& limits);

/// "model" -> "model-00002-of-00017.safetensors"; shard counts from 0.
std::string shard_file_name(std::string_view stem, size_t shard, size_t shards, const HubKind& kind = kSafetensorsHub);
/// True for names that shard_file_name can make from the stem, whatever the numbers.
bool is_shard_file_name(std::string_view name, std::string_view stem, const HubKind& kind = kSafetensorsHub);

}  // namespace shardwright
