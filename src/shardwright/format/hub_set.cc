#include "shardwright/format/hub_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "shardwright/format/hub_index.h"
#include "shardwright/format/hub_shards.h"

namespace shardwright {
namespace {

constexpr std::string_view kIndexMiddle = ".index", kJson = ".json";

/// Names directly in the directory, without those that begin with a dot.
Result<std::vector<std::string>> names_ending(Store& store, std::string_view ending) {
  SHARDWRIGHT_ASSIGN(auto keys, store.list(""));
  std::erase_if(keys, [&](const std::string& key) {
    return !key.ends_with(ending) || key.starts_with('.') || key.find('/') != key.npos;
  });
  return keys;
}

std::string enumerate(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 5; ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > 5 ? out + fmt::format(" and {} more", names.size() - 5) : out;
}

}  // namespace

bool is_hub_index_name(std::string_view name, const HubKind& kind) {
  auto middle = std::string(kind.ending) + std::string(kIndexMiddle);
  auto at = name.rfind(middle);
  return at != name.npos && name.ends_with(kJson) && name.find('/', at) == name.npos &&
         at + middle.size() + kJson.size() <= name.size();
}

std::string HubSet::stem() const {
  auto name = std::string_view(index).substr(prefix.size());
  auto middle = std::string(kind->ending) + std::string(kIndexMiddle);
  auto at = name.rfind(middle);
  if (at == name.npos) return "";
  auto variant = name.substr(at + middle.size());
  variant.remove_suffix(std::min(variant.size(), kJson.size()));
  return std::string(name.substr(0, at)) + std::string(variant);
}

Result<HubSet> find_hub_set(Store& store, std::string_view at, const HubKind& kind) {
  HubSet set;
  set.kind = &kind;
  if (!at.empty()) {
    set.prefix = at.substr(0, at.rfind('/') + 1);
    (is_hub_index_name(at, kind) ? set.index : set.single) = at;
    return set;
  }
  if (has_object(store, kind.index())) set.index = kind.index();
  if (has_object(store, kind.file())) set.single = kind.file();
  if (!set.index.empty() || !set.single.empty()) return set;
  SHARDWRIGHT_ASSIGN(auto indexes, names_ending(store, kind.index_ending));
  SHARDWRIGHT_ASSIGN(auto files, names_ending(store, kind.ending));
  if (indexes.size() == 1)
    set.index = indexes[0];
  else if (indexes.empty() && files.size() == 1)
    set.single = files[0];
  if (!set.index.empty() || !set.single.empty()) return set;
  auto error = fail(Code::kNotFound, fmt::format("no {} checkpoint here", kind.format)).at_path(store.describe(""));
  if (files.empty() && indexes.empty()) return error;
  error.message = indexes.empty() ? fmt::format("several {} files and no index", kind.format)
                                  : "several indexes, none of the standard name";
  error.found = enumerate(indexes.empty() ? files : indexes);
  error.expected = fmt::format("{} or {}", kind.index(), kind.file());
  error.hint = indexes.empty() ? "name one file, or make the index of a sharded checkpoint: `shardwright reindex`"
                               : "name one of them";
  return error;
}

bool has_hub_files(Store& store, const HubKind& kind) {
  if (has_object(store, kind.index()) || has_object(store, kind.file())) return true;
  auto indexes = names_ending(store, kind.index_ending), files = names_ending(store, kind.ending);
  return indexes.ok() && files.ok() && indexes->size() + files->size() > 0;
}

std::vector<std::string> hub_set_members(Store& store, std::string_view at, const HubKind& kind) {
  std::vector<std::string> out;
  auto set = find_hub_set(store, at, kind);
  if (!set.ok()) return out;
  for (const auto& key : {set->single, set->index})
    if (!key.empty() && has_object(store, key)) out.push_back(key);
  if (set->index.empty()) return out;
  auto bytes = read_object(store, set->index, kMaxIndexBytes);
  if (!bytes.ok()) return out;
  auto index = parse_hub_index(text_of(*bytes), [](std::string_view, uint32_t) { return Status(); }, kind);
  if (!index.ok()) return out;
  std::sort(index->files.begin(), index->files.end());
  for (const auto& file : index->files)
    if (auto key = set->prefix + file; key != set->single && has_object(store, key)) out.push_back(key);
  return out;
}

}  // namespace shardwright
