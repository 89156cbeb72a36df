/// Which tensor goes into which file of a checkpoint that is laid out as on the hub. Private to the drafts of such formats.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/format/hub_shards.h"

namespace shardwright {

struct HubCut {
  std::string index;                          ///< its name; "" = there is none
  std::vector<std::string> files;             ///< at least one
  std::vector<std::vector<TensorId>> shards;  ///< of each file, in the order of the index
  uint64_t total_bytes = 0;                   ///< every storage once
  bool header_capped = false;                 ///< more files than by size alone
  std::vector<std::string> warnings;
};

/// options.name "": the standard file, or numbered shards and their index; "X" + kind.index_ending: numbered shards X-... and that index, always; any other
/// name: one file. ids, items: the tensors to be stored, in order. header_bytes: limit for a shard, where there are shards.
/// variant: ".fp16" makes model.fp16.safetensors, or model.fp16-00001-of-... and, as transformers calls it, model.safetensors.index.fp16.json.
/// Errors: kInvalidArgument: a name that is of another index, one file over options.max_shard_bytes, tensors over it when strict (all named).
Result<HubCut> cut_hub(const Catalog& want, std::span<const TensorId> ids, std::span<const ShardItem> items,
                       const WriteOptions& options, uint64_t header_bytes, const HubKind& kind,
                       const std::string& variant = "");

}  // namespace shardwright
