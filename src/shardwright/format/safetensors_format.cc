#include "shardwright/base/text.h"
#include "shardwright/format/hub_open.h"
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
    auto set = find_hub_set(store, at);
    if (set.ok()) return Confidence::kCertain;
    return has_safetensors(store) ? Confidence::kName : Confidence::kNo;
  }
  if (is_hub_index_name(at)) return Confidence::kCertain;
  bool named = at.ends_with(kSafetensorsEnding);
  auto size = store.size(at);
  if (size.ok() && *size && has_magic(store, at, **size)) return named ? Confidence::kCertain : Confidence::kMagic;
  return named ? Confidence::kName : Confidence::kNo;
}

Result<Catalog> open(Store& store, std::string_view at, const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto set, find_hub_set(store, at));
  bool directory = at.empty();
  if (set.index.empty()) return open_safetensors_file(store, set.single, directory, options);
  auto index = HubLines::read(store, set, options);
  if (!index.ok()) return std::move(index.error());
  if (!set.single.empty()) {
    auto missing = index->missing(set);
    auto remark =
        fail(Code::kCorrupt,
             missing.empty()
                 ? "an index and a single file lie side by side; the index is read, other programs may read the file"
                 : "the index names shards that are missing; the single file beside it is read")
            .at_path(store.describe(missing.empty() ? set.single : set.index))
            .with_hint("remove the one that is stale");
    options.remark(std::move(remark));
    if (!missing.empty()) return open_safetensors_file(store, set.single, directory, options);
  }
  return open_hub_set(store, set, *index, directory, options);
}

}  // namespace

const Format kSafetensors = {
    .name = "safetensors",
    .description = "Hugging Face safetensors: one file, or shards with an index",
    .extensions = "*.safetensors, *.safetensors.index.json, directory of them",
    .can = {.write = true, .sharded = true, .ties = true, .metadata = true, .subbyte = true},
    .sniff = sniff,
    .open = open,
    .members = hub_set_members,
    .draft = draft_safetensors,
    .rebuild_index = rebuild_hub_index,
    .settings = "variant, total_parameters",
};

}  // namespace shardwright
