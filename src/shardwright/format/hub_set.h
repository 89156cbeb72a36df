/// Which files of a directory are one checkpoint, as the hub lays it out.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/format/format.h"
#include "shardwright/format/hub_shards.h"

namespace shardwright {

/// "X.safetensors.index.json", or with a variant as transformers names it, "X.safetensors.index.fp16.json".
bool is_hub_index_name(std::string_view name, const HubKind& kind);

/// Keys in the store; empty where there is none.
struct HubSet {
  std::string prefix;  ///< directory of the set: "" or "dir/"
  std::string index;
  std::string single;  ///< the whole checkpoint in one file; beside an index: what other loaders may prefer
  const HubKind* kind = &kSafetensorsHub;
  /// "model" of "model.safetensors.index.json"; "model.fp16" of "model.safetensors.index.fp16.json".
  std::string stem() const;
};

/// at: an index, a file, or "" for the directory: model.safetensors.index.json before model.safetensors before the only index of another name before
/// the only other file of the kind. Errors: kNotFound: none of them, or several and no way to choose (named).
Result<HubSet> find_hub_set(Store& store, std::string_view at, const HubKind& kind);

/// True when the directory has anything of this kind, even if find_hub_set cannot tell what to open.
bool has_hub_files(Store& store, const HubKind& kind);

/// Existing files of the set, entry points (single file, index) first, then the shards that the index names. As far as they can be told: a broken index
/// names no shards.
std::vector<std::string> hub_set_members(Store& store, std::string_view at, const HubKind& kind);

/// Format::rebuild_index: the index that the headers of the shards call for, metadata of the old one kept.
/// Errors: kNotFound: no shards, some of the numbered ones missing, shards of several sets; kCorrupt: a header, a tensor in two shards.
/// list: gives every tensor of the files in order, and returns the bytes of all, ties once.
using ListTensors = std::function<Result<uint64_t>(
    std::span<const std::string> keys, const std::function<void(size_t file, std::string_view name)>& seen)>;
Result<std::pair<std::string, Bytes>> rebuild_hub_index(Store& store, std::string_view at, const HubKind& kind,
                                                        const ListTensors& list);

}  // namespace shardwright
