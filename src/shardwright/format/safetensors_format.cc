#include "shardwright/base/text.h"
#include "shardwright/format/hub_set.h"
#include "shardwright/format/safetensors_draft.h"
#include "shardwright/format/safetensors_fill.h"

namespace shardwright {
namespace {

/// The first bytes look like a header's: a possible length, then JSON.
bool has_magic(Store& store, std::string_view at, uint64_t size) {
  Bytes head(std::min<uint64_t>(size, 64));
  ReadOp op{at, 0, head};
  if (size < 10 || !store.read({&op, 1}).ok()) return false;
  auto length = load_le<uint64_t>(head);
  auto text = text_of(head);
  auto first = text.find_first_not_of(" \t\r\n", 8);
  return length <= size - 8 && length <= kMaxSafetensorsHeader && (first == text.npos || text[first] == '{');
}

Confidence sniff(Store& store, std::string_view at) {
  if (at.empty()) {
    auto set = find_hub_set(store, at, kSafetensorsHub);
    if (set.ok()) return Confidence::kCertain;
    return has_hub_files(store, kSafetensorsHub) ? Confidence::kName : Confidence::kNo;
  }
  if (is_hub_index_name(at, kSafetensorsHub)) return Confidence::kCertain;
  bool named = at.ends_with(kSafetensorsHub.ending);
  auto size = store.size(at);
  if (size.ok() && *size && has_magic(store, at, **size)) return named ? Confidence::kCertain : Confidence::kMagic;
  return named ? Confidence::kName : Confidence::kNo;
}

Result<Catalog> open(Store& store, std::string_view at, const OpenOptions& options) {
  SafetensorsFill fill(store, options);
  return open_hub(store, at, kSafetensorsHub, fill, open_safetensors_file, options);
}

Result<std::pair<std::string, Bytes>> rebuild_index(Store& store, std::string_view at, const OpenOptions& options) {
  auto list = [&](std::span<const std::string> keys,
                  const std::function<void(size_t, std::string_view)>& seen) -> Result<uint64_t> {
    uint64_t total = 0;
    size_t shard = 0;
    auto each = [&](Result<SafetensorsFile> file) -> Status {
      if (!file.ok()) return std::move(file.error());
      auto add = [&](const SafetensorsEntry& entry) {
        seen(shard, entry.name);
        total += entry.end - entry.begin;
        return Status();
      };
      SHARDWRIGHT_TRY(file->visit(store, add, [](Error error) -> Status { return error; }));
      ++shard;
      return {};
    };
    SHARDWRIGHT_TRY(read_safetensors_files(store, keys, options.max_metadata_bytes, each));
    return total;
  };
  return rebuild_hub_index(store, at, kSafetensorsHub, list);
}

std::vector<std::string> members(Store& store, std::string_view at) {
  return hub_set_members(store, at, kSafetensorsHub);
}

}  // namespace

const Format kSafetensors = {
    .name = "safetensors",
    .description = "Hugging Face safetensors: one file, or shards with an index",
    .extensions = "*.safetensors, *.safetensors.index.json, directory of them",
    .can = {.write = true, .sharded = true, .ties = true, .metadata = true, .subbyte = true},
    .sniff = sniff,
    .open = open,
    .members = members,
    .draft = draft_safetensors,
    .rebuild_index = rebuild_index,
    .settings = "variant, total_parameters",
};

}  // namespace shardwright
