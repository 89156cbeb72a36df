/// Which files of a directory are one safetensors checkpoint, as the hub lays it out.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/format/format.h"

namespace shardwright {

inline constexpr std::string_view kSafetensorsEnding = ".safetensors", kHubIndexEnding = ".safetensors.index.json";

/// "X.safetensors.index.json", or with a variant as transformers names it, "X.safetensors.index.fp16.json".
bool is_hub_index_name(std::string_view name);

/// Keys in the store; empty where there is none.
struct HubSet {
  std::string prefix;  ///< directory of the set: "" or "dir/"
  std::string index;
  std::string single;  ///< the whole checkpoint in one file; beside an index: what other loaders may prefer
  /// "model" of "model.safetensors.index.json"; "model.fp16" of "model.safetensors.index.fp16.json".
  std::string stem() const;
};

/// at: an index, a safetensors file, or "" for the directory: model.safetensors.index.json before model.safetensors before the only index of another name before
/// the only other safetensors file. Errors: kNotFound: none of them, or several and no way to choose (named).
Result<HubSet> find_hub_set(Store& store, std::string_view at);

/// True when the directory has anything of this format, even if find_hub_set cannot tell what to open.
bool has_safetensors(Store& store);

/// Existing files of the set, entry points (single file, index) first, then the shards that the index names. As far as they can be told: a broken index
/// names no shards.
std::vector<std::string> hub_set_members(Store& store, std::string_view at);

/// Format::rebuild_index: the index that the headers of the shards call for, metadata of the old one kept.
/// Errors: kNotFound: no shards, some of the numbered ones missing, shards of several sets; kCorrupt: a header, a tensor in two shards.
Result<std::pair<std::string, Bytes>> rebuild_hub_index(Store& store, std::string_view at, const OpenOptions& options);

}  // namespace shardwright
