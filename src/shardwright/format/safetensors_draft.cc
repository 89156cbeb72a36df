#include "shardwright/format/safetensors_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/format/hub_cut.h"
#include "shardwright/format/hub_index.h"
#include "shardwright/format/safetensors_header.h"

namespace shardwright {
namespace {

using Metadata = std::vector<std::pair<std::string, std::string>>;
constexpr uint64_t kHubIndexLimit = 10 * MiB;
constexpr std::string_view kStoragesKey = "safetensors.storages";

class SafetensorsDraft : public Draft {
 public:
  static Result<std::unique_ptr<Draft>> make(const SafetensorsLimits& limits, const Catalog& want,
                                             const WriteOptions& options) {
    auto draft = std::unique_ptr<SafetensorsDraft>(new SafetensorsDraft(limits, want));
    SHARDWRIGHT_TRY(draft->check_names());
    SHARDWRIGHT_TRY(draft->take_settings(options));
    SHARDWRIGHT_TRY(draft->take_metadata());
    SHARDWRIGHT_TRY(draft->cut(options));
    draft->place();
    return Result<std::unique_ptr<Draft>>(std::move(draft));
  }

  const Catalog& target() const override { return want_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  std::vector<std::string> warnings() const override { return warnings_; }

  std::vector<Segment> segments(ObjectId object) const override {
    std::vector<Segment> out;
    out.reserve(in_file_order(object).size() + 1);
    uint64_t offset = header_bytes_[object];
    Segment header{headers_.empty() ? Segment::kLate : Segment::kLiteral};
    header.offset = 0;
    header.length = offset;
    if (!headers_.empty()) header.literal = headers_[object];
    out.push_back(header);
    for (TensorId id : in_file_order(object)) {
      Segment payload{Segment::kPayload, id, kWholeTensor, offset, want_.spec(id).nbytes(), {}};
      offset += payload.length;
      out.push_back(payload);
    }
    return out;
  }

  Result<Bytes> late(ObjectId object, size_t, std::span<const Receipt>) override { return header(object); }

  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override {
    std::vector<std::pair<std::string, Bytes>> out;
    if (index_name_.empty()) return out;
    Json metadata = Json::object();
    if (total_parameters_) metadata["total_parameters"] = *total_parameters_;
    metadata["total_size"] = total_bytes_;
    for (const auto& [key, value] : metadata_.items())
      if (key != "format" && key != "total_size" && !total_parameters_) metadata[key] = value;
    for (const auto& [alias, kept] : notes_) metadata[alias] = kept;
    HubIndexWriter writer(metadata);
    std::vector<std::pair<std::string_view, std::string_view>> lines;
    for (size_t i = 0; i < shards_.size(); ++i)
      for (TensorId id : shards_[i]) lines.emplace_back(want_.spec(id).name, objects_[i].key);
    if (total_parameters_) std::sort(lines.begin(), lines.end());
    for (const auto& [name, file] : lines) writer.add(name, file);
    Bytes text = writer.finish();
    if (total_parameters_) text.push_back(std::byte{'\n'});
    out.emplace_back(index_name_, std::move(text));
    return out;
  }
  std::vector<ObjectInfo> sealed() const override {
    return index_name_.empty() ? std::vector<ObjectInfo>() : std::vector<ObjectInfo>{{index_name_, kUnknown}};
  }

 private:
  SafetensorsDraft(const SafetensorsLimits& limits, const Catalog& want) : limits_(limits), want_(want) {}

  Status check_names() const {
    for (TensorId id = 0; id < want_.size(); ++id) {
      auto name = want_.spec(id).name;
      if (name == kSafetensorsMetadataKey)
        return fail(Code::kInvalidArgument, "safetensors cannot hold a tensor of this name: it means the metadata")
            .at_tensor(std::string(name))
            .with_hint("rename it on the way (--rename)");
      if (!safetensors_has(want_.spec(id).dtype))
        return fail(Code::kUnsupported, fmt::format("safetensors has no type {}", dtype_row(want_.spec(id).dtype).name))
            .at_tensor(std::string(name))
            .with_hint("leave it out (--exclude), or write another format");
      if (!is_utf8(name))
        return fail(Code::kUnsupported, "safetensors cannot hold a name that is not UTF-8")
            .at_tensor(std::string(name))
            .with_hint("rename it on the way (--rename)");
    }
    return {};
  }

  Status take_settings(const WriteOptions& options) {
    for (const auto& [name, value] : options.settings) {
      if (name == "variant" && options.name.empty() && is_safe_relative_path(value) && value.find('/') == value.npos) {
        variant_ = "." + value;
      } else if (name == "total_parameters" && !value.empty() && value.size() < 20 &&
                 std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; })) {
        total_parameters_ = std::stoull(value);
      } else {
        return fail(Code::kInvalidArgument, "not an option of safetensors")
            .with_found(fmt::format("{}={}", name, value))
            .with_expected("variant=NAME, for a directory; total_parameters=COUNT");
      }
    }
    return {};
  }

  /// Per tensor the number of its storage and the bytes of that; null: its own.
  Status take_storages(const std::vector<TensorId>& ids, std::vector<ShardItem>& items) const {
    const Value* value = want_.value(kStoragesKey);
    if (value == nullptr) return {};
    SHARDWRIGHT_ASSIGN(auto storages, parse_json(value->data));
    auto wrong = fail(Code::kInvalidArgument, "storages are a list of [number, bytes], one for each tensor");
    if (!storages.is_array() || storages.size() != want_.size()) return wrong;
    for (size_t i = 0; i < ids.size(); ++i) {
      const Json& storage = storages[ids[i]];
      if (storage.is_null()) continue;
      if (!storage.is_array() || storage.size() != 2 || !storage[0].is_number_unsigned() ||
          !storage[1].is_number_unsigned() || storage[0].get<uint64_t>() >= kNoStorage)
        return wrong;
      items[i].storage = storage[0].get<uint32_t>();
      items[i].bytes = storage[1].get<uint64_t>();
    }
    return {};
  }

  /// User metadata without what follows from the tensors, and the notes that say what is tied to what.
  Status take_metadata() {
    for (const auto& key : want_.value_keys())
      if (key != "metadata" && key != "opaque" && key != kStoragesKey)
        warnings_.push_back(fmt::format("safetensors has no place for '{}'; it is left out", key));
    if (const Value* value = want_.value("metadata")) {
      SHARDWRIGHT_ASSIGN(metadata_, parse_json(value->data));
      if (!metadata_.is_object()) return fail(Code::kInvalidArgument, "metadata is not a JSON object");
    }
    for (TensorId id = 0; id < want_.size(); ++id) {
      if (want_.same_as(id) == id) continue;
      std::string alias(want_.spec(id).name), kept(want_.spec(want_.same_as(id)).name);
      auto taken = metadata_.find(alias);
      if (taken != metadata_.end() && *taken == kept) continue;
      // User metadata is never overridden; "format" and "total_size" would be misread.
      if (taken != metadata_.end() || alias == "format" || alias == "total_size")
        warnings_.push_back(
            fmt::format("that '{}' is tied to '{}' cannot be noted: the metadata has a key of that name", alias, kept));
      else
        notes_.emplace(alias, kept);
    }
    return {};
  }

  Metadata file_metadata() const {
    // transformers refuses a file without it; mlx and tf files keep theirs.
    auto format = metadata_.find("format");
    Metadata out = {{"format", format != metadata_.end() && format->is_string() ? format->get<std::string>() : "pt"}};
    if (!index_name_.empty() && !total_parameters_) return out;
    for (const auto& [key, value] : metadata_.items())
      if (key != "format") out.emplace_back(key, value.is_string() ? value.get<std::string>() : json_text(value));
    out.insert(out.end(), notes_.begin(), notes_.end());
    return out;
  }

  /// Which tensor goes into which file, and what the files are called.
  Status cut(const WriteOptions& options) {
    std::vector<TensorId> ids;
    std::vector<ShardItem> items;
    for (TensorId id = 0; id < want_.size(); ++id) {
      if (want_.same_as(id) != id) continue;
      auto spec = want_.spec(id);
      ids.push_back(id);
      items.push_back({spec.nbytes(), kNoStorage,
                       static_cast<uint32_t>(std::min<uint64_t>(safetensors_entry_bound(spec.name, spec.shape), ~0u))});
    }
    // A kilobyte for the metadata of a shard.
    SHARDWRIGHT_TRY(take_storages(ids, items));
    auto header_bytes = limits_.header_bytes - std::min<uint64_t>(limits_.header_bytes, KiB);
    SHARDWRIGHT_ASSIGN(auto cut, cut_hub(want_, ids, items, options, header_bytes, kSafetensorsHub, variant_));
    warnings_.insert(warnings_.end(), cut.warnings.begin(), cut.warnings.end());
    if (cut.header_capped)
      warnings_.push_back(
          fmt::format("more shards than by size alone: no header may be longer than {} bytes", limits_.header_bytes));
    total_bytes_ = cut.total_bytes;
    index_name_ = std::move(cut.index);
    for (auto& file : cut.files) objects_.push_back({std::move(file), 0});
    shards_ = std::move(cut.shards);
    return check_headers();
  }

  /// Bytes in the file, header and all; sorts the shard into file order.
  Status check_headers() {
    uint64_t sum = 0;
    starts_.push_back(0);
    for (size_t i = 0; i < shards_.size(); ++i) {
      order_.insert(order_.end(), shards_[i].begin(), shards_[i].end());
      starts_.push_back(order_.size());
      std::sort(order_.begin() + static_cast<ptrdiff_t>(starts_[i]), order_.end(), [&](TensorId a, TensorId b) {
        auto left = want_.spec(a), right = want_.spec(b);
        return safetensors_before(left.dtype, left.name, right.dtype, right.name);
      });
      Bytes made = header(static_cast<ObjectId>(i));
      header_bytes_.push_back(made.size());
      sum += made.size();
      if (sum <= limits_.literal_bytes)
        headers_.push_back(std::move(made));
      else
        headers_.clear();
      if (header_bytes_.back() - 8 > limits_.header_bytes)
        return fail(Code::kInvalidArgument, "the header would be too long: no reader takes it")
            .at_path(objects_[i].key)
            .with_found(fmt::format("{} bytes for {} tensors", header_bytes_.back() - 8, shards_[i].size()))
            .with_expected(fmt::format("at most {}", limits_.header_bytes))
            .with_hint("write shards: name a directory, or an index: X.safetensors.index.json");
    }
    if (sum > limits_.literal_bytes) headers_.clear();
    return {};
  }

  void place() {
    for (size_t i = 0; i < shards_.size(); ++i) {
      objects_[i].size = header_bytes_[i];
      for (TensorId id : shards_[i]) objects_[i].size += want_.spec(id).nbytes();
    }
    if (index_name_.empty()) return;
    uint64_t bytes = 0;
    for (const auto& shard : shards_)
      for (TensorId id : shard) bytes += want_.spec(id).name.size() + objects_[0].key.size() + 12;
    if (bytes > kHubIndexLimit)
      warnings_.push_back(
          fmt::format("the index is larger than the {} that huggingface_hub reads", format_bytes(kHubIndexLimit)));
  }

  std::span<const TensorId> in_file_order(ObjectId object) const {
    return std::span(order_).subspan(starts_[object], starts_[object + 1] - starts_[object]);
  }

  Bytes header(ObjectId object) const {
    auto metadata = file_metadata();
    SafetensorsHeaderWriter writer(&metadata);
    uint64_t offset = 0;
    for (TensorId id : in_file_order(object)) {
      auto spec = want_.spec(id);
      uint64_t end = offset + spec.nbytes();
      writer.add(spec.name, spec.dtype, spec.shape, offset, end);
      offset = end;
    }
    return writer.finish();
  }

  SafetensorsLimits limits_;
  Catalog want_;
  Json metadata_ = Json::object();
  std::string variant_;                       ///< ".fp16"
  std::optional<uint64_t> total_parameters_;  ///< set: files are those of transformers' save_pretrained()
  std::map<std::string, std::string> notes_;  ///< alias -> kept
  std::string index_name_;
  std::vector<ObjectInfo> objects_;
  std::vector<std::vector<TensorId>> shards_;  ///< in the order of the index
  std::vector<TensorId> order_;                ///< all files, each in its own order
  std::vector<size_t> starts_;                 ///< of each file in order_
  std::vector<uint64_t> header_bytes_;
  std::vector<Bytes> headers_;  ///< empty: too large to keep
  uint64_t total_bytes_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<std::unique_ptr<Draft>> draft_safetensors(const Catalog& want, const WriteOptions& options) {
  return SafetensorsDraft::make({}, want, options);
}

Result<std::unique_ptr<Draft>> draft_safetensors_within(const SafetensorsLimits& limits, const Catalog& want,
                                                        const WriteOptions& options) {
  return SafetensorsDraft::make(limits, want, options);
}

}  // namespace shardwright
