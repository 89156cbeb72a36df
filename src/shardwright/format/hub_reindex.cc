#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "shardwright/format/hub_index.h"
#include "shardwright/format/hub_set.h"
#include "shardwright/format/hub_shards.h"

namespace shardwright {
namespace {

/// What an old index still tells; all of it may be missing.
struct Old {
  std::string prefix, index;  ///< keys; index may not exist
  const HubKind& kind;
  Json metadata = Json::object();
  std::vector<std::string> files;
  std::string stem() const {
    return index.substr(prefix.size(), index.size() - prefix.size() - kind.index_ending.size());
  }
};

void read_old(Store& store, Old& old) {
  auto bytes = read_object(store, old.index, kMaxIndexBytes);
  if (!bytes.ok()) return;
  auto index = parse_hub_index(text_of(*bytes), [](std::string_view, uint32_t) { return Status(); }, old.kind);
  if (!index.ok()) return;
  old.metadata = std::move(index->metadata);
  old.files = std::move(index->files);
}

/// "model-00002-of-00017.safetensors": stem, number, total.
struct ShardName {
  std::string stem;
  uint64_t number = 0, total = 0;
};
std::optional<ShardName> shard_name(std::string_view name, const HubKind& kind) {
  auto of = name.rfind("-of-");
  auto dash = of == name.npos || of == 0 ? name.npos : name.rfind('-', of - 1);
  if (dash == name.npos || !is_shard_file_name(name, name.substr(0, dash), kind)) return std::nullopt;
  auto digits = [](std::string_view text) {
    return text.size() > 9 ? 0 : std::strtoull(std::string(text).c_str(), nullptr, 10);
  };
  return ShardName{std::string(name.substr(0, dash)), digits(name.substr(dash + 1, of - dash - 1)),
                   digits(name.substr(of + 4, name.size() - of - 4 - kind.ending.size()))};
}

/// The numbered files of one stem, complete, sorted.
Result<std::vector<std::string>> numbered(const std::string& stem, const std::vector<std::string>& names,
                                          const HubKind& kind) {
  std::vector<std::string> out;
  std::set<uint64_t> totals, numbers;
  for (const auto& name : names) {
    auto parts = shard_name(name, kind);
    if (!parts || parts->stem != stem) continue;
    totals.insert(parts->total);
    numbers.insert(parts->number);
    out.push_back(name);
  }
  if (totals.size() > 1)
    return fail(Code::kNotFound, "shards of more than one save lie here")
        .with_found(fmt::format("sets of {} and of {} shards", *totals.begin(), *totals.rbegin()))
        .with_hint("remove the shards that are not wanted");
  if (!out.empty() && (out.size() != *totals.begin() || *numbers.begin() != 1 || *numbers.rbegin() != out.size())) {
    std::string missing;
    for (uint64_t i = 1, told = 0; i <= *totals.begin() && told < 20; ++i)
      if (!numbers.contains(i))
        missing += (told++ == 0 ? "" : ", ") + shard_file_name(stem, i - 1, *totals.begin(), kind);
    return fail(Code::kNotFound, "shards are missing: " + missing)
        .with_found(fmt::format("{}", out.size()))
        .with_expected(fmt::format("{}", *totals.begin()));
  }
  return out;
}

/// Shards of the set: by the name pattern, else those of the old index that are there.
Result<std::vector<std::string>> shards_of(Store& store, Old& old) {
  SHARDWRIGHT_ASSIGN(auto keys, store.list(old.prefix));
  std::vector<std::string> names;
  std::set<std::string> stems;
  for (const auto& key : keys) {
    auto name = key.substr(old.prefix.size());
    if (name.find('/') != name.npos || name.starts_with('.')) continue;
    if (auto parts = shard_name(name, old.kind)) stems.insert(parts->stem);
    names.push_back(std::move(name));
  }
  if (old.index.empty()) {
    if (stems.size() > 1)
      return fail(Code::kNotFound, "shards of several checkpoints lie here")
          .with_found(*stems.begin() + ", " + *stems.rbegin())
          .with_hint("name the index to be made");
    old.index =
        old.prefix + (stems.empty() ? std::string(old.kind.stem) : *stems.begin()) + std::string(old.kind.index_ending);
  }
  SHARDWRIGHT_ASSIGN(auto shards, numbered(old.stem(), names, old.kind));
  if (!shards.empty()) return shards;
  std::sort(old.files.begin(), old.files.end());
  for (const auto& file : old.files)
    if (std::binary_search(keys.begin(), keys.end(), old.prefix + file)) shards.push_back(file);
  if (shards.empty())
    return fail(Code::kNotFound, "no shards here that an index could name")
        .with_expected(shard_file_name(old.stem(), 0, 2, old.kind) + " and so on");
  return shards;
}

Result<Bytes> index_of(Store& store, const Old& old, const std::vector<std::string>& shards, const ListTensors& list) {
  std::vector<std::string> keys;
  for (const auto& shard : shards) keys.push_back(old.prefix + shard);
  struct Entry {
    std::string name;
    size_t shard;
  };
  std::vector<Entry> entries;
  SHARDWRIGHT_ASSIGN(uint64_t total, list(keys, [&](size_t shard, std::string_view name) {
                       entries.push_back({std::string(name), shard});
                     }));
  std::vector<uint32_t> by_name(entries.size());
  for (uint32_t i = 0; i < by_name.size(); ++i) by_name[i] = i;
  std::sort(by_name.begin(), by_name.end(), [&](uint32_t a, uint32_t b) { return entries[a].name < entries[b].name; });
  for (size_t i = 1; i < by_name.size(); ++i)
    if (const auto &a = entries[by_name[i - 1]], &b = entries[by_name[i]]; a.name == b.name)
      return fail(Code::kCorrupt, "a tensor is given twice")
          .at_tensor(a.name)
          .at_path(store.describe(keys[std::max(a.shard, b.shard)]))
          .with_found("also in " + shards[std::min(a.shard, b.shard)]);
  Json metadata = Json::object();
  metadata["total_size"] = total;
  for (const auto& [key, value] : old.metadata.items())
    if (key != "total_size") metadata[key] = value;
  HubIndexWriter writer(metadata);
  for (const auto& entry : entries) writer.add(entry.name, shards[entry.shard]);
  return writer.finish();
}

}  // namespace

Result<std::pair<std::string, Bytes>> rebuild_hub_index(Store& store, std::string_view at, const HubKind& kind,
                                                        const ListTensors& list) {
  Old old{"", "", kind, Json::object(), {}};
  if (!at.empty() && !at.ends_with(kind.index_ending))
    return fail(Code::kNotFound, "not the name of an index")
        .at_path(store.describe(at))
        .with_expected("a directory, or a name that ends in " + std::string(kind.index_ending));
  old.prefix = at.substr(0, at.rfind('/') + 1);
  old.index = at;
  // The directory's own index, when it has one; find_hub_set may not find any, and that is why one is made.
  if (auto set = find_hub_set(store, at, kind); set.ok()) old.index = set->index;
  if (!old.index.empty()) read_old(store, old);
  auto place = [&](Error error) {
    if (error.path.empty()) error.path = store.describe(old.index.empty() ? at : old.index);
    return error;
  };
  auto shards = shards_of(store, old);
  if (!shards.ok()) return place(std::move(shards.error()));
  auto bytes = index_of(store, old, *shards, list);
  if (!bytes.ok()) return place(std::move(bytes.error()));
  return std::pair{old.index, std::move(*bytes)};
}

}  // namespace shardwright
