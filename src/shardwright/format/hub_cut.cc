#include "shardwright/format/hub_cut.h"

#include <fmt/format.h>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

Status tell_oversized(const Catalog& want, const ShardAssignment& assigned, std::span<const TensorId> ids,
                      const WriteOptions& options, std::vector<std::string>& warnings) {
  if (assigned.oversized.empty()) return {};
  std::string names;
  for (size_t i = 0; i < assigned.oversized.size(); ++i) {
    auto spec = want.spec(ids[assigned.oversized[i]]);
    names += fmt::format("{}'{}' ({})", i == 0 ? "" : ", ", spec.name, format_bytes(spec.nbytes()));
    if (!options.strict && !options.larger_alone)
      warnings.push_back(fmt::format("tensor '{}' ({}) is larger than a shard may be ({}): it has a shard to itself",
                                     spec.name, format_bytes(spec.nbytes()), format_bytes(options.max_shard_bytes)));
  }
  if (!options.strict) return {};
  return fail(Code::kInvalidArgument, "tensors are larger than a shard may be: " + names)
      .with_expected("at most " + format_bytes(options.max_shard_bytes))
      .with_hint("raise --max-shard-size, or leave --strict out");
}

}  // namespace

Result<HubCut> cut_hub(const Catalog& want, std::span<const TensorId> ids, std::span<const ShardItem> items,
                       const WriteOptions& options, uint64_t header_bytes, const HubKind& kind,
                       const std::string& variant) {
  bool index = options.name.ends_with(kind.index_ending), directory = options.name.empty();
  if (options.name.ends_with(".index.json") && !index)
    return fail(Code::kInvalidArgument, "not a name for an index")
        .with_found(options.name)
        .with_expected("a name that ends in " + std::string(kind.index_ending));
  std::string stem =
      (index ? options.name.substr(0, options.name.size() - kind.index_ending.size()) : std::string(kind.stem)) +
      variant;
  ShardLimits limits;
  if (index || directory) limits = {options.max_shard_bytes, header_bytes};
  auto assigned = assign_shards(items, limits);
  if (assigned.shards.empty()) assigned.shards.emplace_back();  // a checkpoint of no tensors is a file all the same
  if (!index && !directory && options.max_shard_bytes != kUnknown && assigned.total_bytes > options.max_shard_bytes)
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' is one file, and larger than the limit for a shard", options.name))
        .with_found(format_bytes(assigned.total_bytes))
        .with_expected("at most " + format_bytes(options.max_shard_bytes))
        .with_hint("name a directory, or an index: " + options.name + ".index.json");
  HubCut out;
  SHARDWRIGHT_TRY(tell_oversized(want, assigned, ids, options, out.warnings));
  out.header_capped = assigned.header_capped;
  out.total_bytes = assigned.total_bytes;
  size_t count = assigned.shards.size();
  if (index || count > 1)
    out.index = variant.empty() ? stem + std::string(kind.index_ending)
                                : fmt::format("{}{}.index{}.json", kind.stem, kind.ending, variant);
  for (size_t i = 0; i < count; ++i) {
    out.files.push_back(!out.index.empty() ? shard_file_name(stem, i, count, kind)
                        : directory        ? stem + std::string(kind.ending)
                                           : options.name);
    auto& shard = out.shards.emplace_back();
    for (uint32_t item : assigned.shards[i]) shard.push_back(ids[item]);
  }
  return out;
}

}  // namespace shardwright
