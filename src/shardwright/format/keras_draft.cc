#include "shardwright/format/keras_draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/format/keras_index.h"
#include "shardwright/format/keras_names.h"
#include "shardwright/format/keras_shards.h"

namespace shardwright {
namespace {

// HDF5's object headers hold 64 KiB.
constexpr size_t kMaxMetadataBytes = 60 * KiB;
constexpr size_t kMostWarnings = 8;

class KerasDraft : public Draft {
 public:
  KerasDraft(Catalog want, std::vector<std::string> warnings)
      : want_(std::move(want)), warnings_(std::move(warnings)) {}
  void add(std::string key, Hdf5Layout layout) {
    objects_.push_back({std::move(key), layout.size()});
    layouts_.push_back(std::move(layout));
  }
  void set_index(std::string key, std::string_view text) { index_.emplace_back(std::move(key), bytes_of(text)); }

  const Catalog& target() const override { return want_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  std::vector<Segment> segments(ObjectId object) const override { return layouts_[object].segments(); }
  Result<Bytes> late(ObjectId, size_t, std::span<const Receipt>) override {
    return fail(Code::kInternal, "HDF5 has no late segments");
  }
  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override { return index_; }
  std::vector<ObjectInfo> sealed() const override {
    std::vector<ObjectInfo> out;
    for (const auto& [key, bytes] : index_) out.push_back({key, bytes.size()});
    return out;
  }
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  Catalog want_;
  std::vector<ObjectInfo> objects_;
  std::vector<Hdf5Layout> layouts_;
  std::vector<std::pair<std::string, Bytes>> index_;
  std::vector<std::string> warnings_;
};

std::string json_of(const Catalog& want, std::string_view key) {
  auto value = want.value(key);
  return value != nullptr && value->type == Value::kJson && value->data != "{}" ? value->data : "";
}

/// A name that is its own path goes first: it needs no attribute, which a dataset has for one name only.
void put_plain_name_first(std::vector<Hdf5Plan::Name>& names) {
  auto plain = std::find_if(names.begin(), names.end(), [](const auto& name) { return name.path == name.name; });
  if (plain != names.end()) std::rotate(names.begin(), plain, plain + 1);
}

/// weight_map in the order in which Keras would have saved these variables.
KerasIndex index_of(const Catalog& want, std::span<const Hdf5Plan> plans, const KerasSplit& split,
                    const std::string& base) {
  KerasIndexBuilder builder;
  for (uint32_t shard = 0; shard < split.count; ++shard) builder.index.files.push_back(keras_shard_file(base, shard));
  builder.index.total_size = split.total;
  builder.index.metadata = json_of(want, "metadata");
  for (size_t i = 0; i < plans.size(); ++i)
    for (const auto& name : plans[i].names) builder.add(vars_group_of(name.path), split.shard[i]);
  return std::move(builder.index);
}

Result<std::vector<std::string>> warn_of_oversized(const Catalog& want, std::span<const Hdf5Plan> plans,
                                                   const KerasSplit& split, const WriteOptions& options) {
  std::vector<std::string> warnings;
  for (size_t i : split.oversized) {
    auto spec = want.spec(plans[i].tensor);
    if (options.strict)
      return fail(Code::kInvalidArgument, "tensor is larger than a shard may be")
          .at_tensor(std::string(spec.name))
          .with_found(format_bytes(spec.nbytes()))
          .with_expected("at most " + format_bytes(options.max_shard_bytes))
          .with_hint("raise --max-shard-size, or leave --strict out: it then gets a shard to itself");
    if (!options.larger_alone && warnings.size() < kMostWarnings)
      warnings.push_back(fmt::format("'{}' ({}) is larger than a shard may be ({}) and gets a shard to itself",
                                     spec.name, format_bytes(spec.nbytes()), format_bytes(options.max_shard_bytes)));
  }
  if (!options.larger_alone && split.oversized.size() > kMostWarnings)
    warnings.push_back(
        fmt::format("{} more tensors are larger than a shard may be", split.oversized.size() - kMostWarnings));
  return warnings;
}

}  // namespace

std::vector<Hdf5Plan> plan_keras_datasets(const Catalog& want) {
  std::vector<std::string_view> names;
  for (TensorId id = 0; id < want.size(); ++id) names.push_back(want.spec(id).name);
  auto paths = keras_paths(names);
  std::vector<Hdf5Plan> plans;
  std::vector<uint32_t> plan_of(want.size());
  for (TensorId id = 0; id < want.size(); ++id) {
    if (want.same_as(id) != id) continue;
    plan_of[id] = static_cast<uint32_t>(plans.size());
    plans.push_back({id, {{std::move(paths[id]), std::string(names[id])}}});
  }
  if (want.tie_count() == 0) return plans;
  for (TensorId id = 0; id < want.size(); ++id)
    if (auto kept = want.same_as(id); kept != id)
      plans[plan_of[kept]].names.push_back({std::move(paths[id]), std::string(names[id])});
  for (auto& plan : plans) put_plain_name_first(plan.names);
  return plans;
}

Hdf5Labels keras_labels(const Catalog& want) {
  Hdf5Labels labels;
  auto parsed = parse_json(json_of(want, "keras.names"));
  if (!parsed.ok() || !parsed->is_object()) return labels;
  for (const auto& [group, label] : parsed->items())
    // The name of a group of ours may not be taken for a layer's.
    if (label.is_string() && is_vars_group(group)) labels.emplace(group, label.get<std::string>());
  return labels;
}

Result<Hdf5Layout> lay_out_keras_file(const Catalog& want, std::vector<std::string>& warnings) {
  auto metadata = json_of(want, "metadata");
  if (metadata.size() > kMaxMetadataBytes) {
    warnings.push_back(fmt::format("the checkpoint's metadata ({}) is left out: HDF5 holds {}",
                                   format_bytes(metadata.size()), format_bytes(kMaxMetadataBytes)));
    metadata.clear();
  }
  auto labels = keras_labels(want);
  auto plans = plan_keras_datasets(want);
  return Hdf5Layout::make(want, plans, labels, metadata, /*empty_groups=*/true);
}

Result<std::unique_ptr<Draft>> draft_keras_h5(const Catalog& want, const WriteOptions& options) {
  auto name = options.name.empty() ? "model.weights.h5" : options.name;
  if (options.max_shard_bytes != kUnknown)
    return fail(Code::kInvalidArgument, "one HDF5 file has no shards")
        .at_path(name)
        .with_hint("name an index, e.g. x.weights.json");
  std::vector<std::string> warnings;
  SHARDWRIGHT_ASSIGN(auto layout, lay_out_keras_file(want, warnings));
  auto draft = std::make_unique<KerasDraft>(want, std::move(warnings));
  draft->add(name, std::move(layout));
  return draft;
}

Result<std::unique_ptr<Draft>> draft_keras_sharded(const Catalog& want, const WriteOptions& options) {
  auto name = options.name.empty() ? "model.weights.json" : options.name;
  auto base = keras_base_name(name);
  if (!name.ends_with("weights.json") || name.find('/') != std::string::npos)
    return fail(Code::kInvalidArgument, "Keras finds sharded weights only by a name that ends in weights.json")
        .at_path(name);
  auto plans = plan_keras_datasets(want);
  for (const auto& plan : plans)
    for (const auto& tensor : plan.names)
      if (!is_utf8(tensor.path))
        return fail(Code::kUnsupported, "an index of Keras cannot hold a name that is not UTF-8")
            .at_tensor(tensor.name)
            .with_hint("rename it on the way (--rename)");
  std::vector<double> sizes;
  for (const auto& plan : plans)
    sizes.push_back(keras_size(want.spec(plan.tensor).dtype, want.spec(plan.tensor).shape));
  auto split = split_keras(sizes, options.max_shard_bytes);
  SHARDWRIGHT_ASSIGN(auto warnings, warn_of_oversized(want, plans, split, options));
  auto draft = std::make_unique<KerasDraft>(want, std::move(warnings));
  auto labels = keras_labels(want);
  auto index = format_keras_index(index_of(want, plans, split, base));
  if (index.size() > kMaxKerasIndexBytes)
    return fail(Code::kUnsupported, "this checkpoint has more layers than one Keras index is read with")
        .at_path(name)
        .with_found(fmt::format("an index of {} for {} tensors", format_bytes(index.size()), plans.size()))
        .with_expected("at most " + format_bytes(kMaxKerasIndexBytes))
        .with_hint("safetensors has no such limit; --include writes a part");
  draft->set_index(name, std::move(index));
  size_t from = 0;
  for (uint32_t shard = 0; shard < split.count; ++shard) {
    size_t to = from;
    while (to < plans.size() && split.shard[to] == shard) ++to;
    SHARDWRIGHT_ASSIGN(auto layout, Hdf5Layout::make(want, std::span(plans).subspan(from, to - from), labels, ""));
    draft->add(keras_shard_file(base, shard), std::move(layout));
    from = to;
  }
  return draft;
}

}  // namespace shardwright
