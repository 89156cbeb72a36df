#include "shardwright/format/hub_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace shardwright {
namespace {

bool takes(uint64_t used, uint64_t more, uint64_t limit) {
  auto sum = checked_add(used, more);
  return limit == kUnknown || (sum && *sum <= limit);
}

}  // namespace

ShardAssignment assign_shards(std::span<const ShardItem> items, const ShardLimits& limits) {
  ShardAssignment out;
  constexpr size_t kCurrent = ~size_t{0};  // the shard being filled has no number yet
  std::vector<uint32_t> current;
  uint64_t bytes = 0, header = 0;
  struct First {
    uint32_t item;
    size_t shard;
    std::vector<uint32_t> others;
  };
  std::vector<First> storages;
  std::unordered_map<uint32_t, size_t> storage_at;
  std::vector<size_t> in_current;  // storages whose shard is the current one
  auto close = [&] {
    for (size_t at : in_current) storages[at].shard = out.shards.size();
    in_current.clear();
    out.shards.push_back(std::move(current));
    current = {};
    bytes = header = 0;
  };

  for (uint32_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    size_t storage = kCurrent;
    if (item.storage != kNoStorage) {
      auto [at, fresh] = storage_at.emplace(item.storage, storages.size());
      if (!fresh) {
        storages[at->second].others.push_back(i);
        continue;
      }
      storage = at->second;
      storages.push_back({i, kCurrent, {}});
    }
    out.total_bytes += item.bytes;
    if (!takes(0, item.bytes, limits.bytes)) {
      if (storage != kCurrent) storages[storage].shard = out.shards.size();
      out.shards.push_back({i});
      out.oversized.push_back(i);
      continue;
    }
    bool header_full = !current.empty() && !takes(header, item.header_bytes, limits.header_bytes);
    bool full = !takes(bytes, item.bytes, limits.bytes);
    out.header_capped |= header_full && !full;
    if (full || header_full) close();
    current.push_back(i);
    if (storage != kCurrent) in_current.push_back(storage);
    bytes += item.bytes;
    header += item.header_bytes;
  }
  if (!current.empty()) close();
  for (const auto& [item, shard, others] : storages)
    out.shards[shard].insert(out.shards[shard].end(), others.begin(), others.end());
  return out;
}

std::string shard_file_name(std::string_view stem, size_t shard, size_t shards, const HubKind& kind) {
  return fmt::format("{}-{:05}-of-{:05}{}", stem, shard + 1, shards, kind.ending);
}

bool is_shard_file_name(std::string_view name, std::string_view stem, const HubKind& kind) {
  if (!name.starts_with(stem) || !name.ends_with(kind.ending) || name.size() < stem.size() + kind.ending.size())
    return false;
  name = name.substr(stem.size(), name.size() - stem.size() - kind.ending.size());
  auto of = name.find("-of-");
  if (!name.starts_with("-") || of == name.npos) return false;
  auto number = [](std::string_view digits) {
    return digits.size() >= 5 && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  return number(name.substr(1, of - 1)) && number(name.substr(of + 4));
}

}  // namespace shardwright
