#include "shardwright/format/torch_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "shardwright/base/checksum.h"
#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/format/hub_cut.h"
#include "shardwright/format/hub_index.h"
#include "shardwright/format/pickle_writer.h"
#include "shardwright/format/torch_file.h"
#include "shardwright/format/torch_types.h"
#include "shardwright/store/zip.h"

namespace shardwright {
namespace {

constexpr uint64_t kAlignment = 64;         // torch's own
constexpr uint32_t kDosEpoch = 0x00210000;  // 1980-01-01 00:00
constexpr std::string_view kFolder = "archive/";
/// Records before the storages.
constexpr size_t kNotes = 3;

/// Of contiguous elements, as torch counts them: a dimension of none is one.
std::vector<int64_t> torch_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(shape[d], 1);
  return strides;
}

void write_tensor(PickleWriter& out, const Catalog::Spec& spec, size_t storage) {
  const auto& row = dtype_row(spec.dtype);
  const auto* typed = torch_storage_class(spec.dtype);
  std::vector<int64_t> shape(spec.shape.begin(), spec.shape.end());
  if (row.block_elems > 1) shape.back() /= row.block_elems;
  out.global("torch._utils", typed != nullptr ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  out.mark();
  out.mark();
  out.constant("storage");
  out.global(typed != nullptr ? "torch" : "torch.storage", typed != nullptr ? typed->name : "UntypedStorage");
  out.text(std::to_string(storage));
  out.constant("cpu");
  out.integer(static_cast<int64_t>(typed != nullptr ? spec.elements() : spec.nbytes()));
  out.tuple();
  out.persistent();
  out.integer(0);  // offset
  out.integers(shape);
  out.integers(torch_strides(shape));
  out.boolean(false);  // requires_grad
  out.global("collections", "OrderedDict");
  out.empty_tuple();
  out.call();
  if (typed == nullptr) out.global("torch", torch_dtype_name(spec.dtype));
  out.tuple();
  out.call();
}

/// At most so many bytes of the pickle.
uint64_t entry_bound(const Catalog::Spec& spec) { return spec.name.size() + 64 + 18 * spec.shape.size(); }

class TorchDraft : public Draft {
 public:
  explicit TorchDraft(const Catalog& want) : want_(want) {}

  Status make(const WriteOptions& options) {
    SHARDWRIGHT_TRY(check_specs());
    SHARDWRIGHT_TRY(cut(options));
    SHARDWRIGHT_TRY(take_metadata());
    for (size_t i = 0; i < cut_.shards.size(); ++i) lay_out(i);
    return {};
  }

  const Catalog& target() const override { return want_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  bool wants_crc32() const override { return true; }
  std::vector<std::string> warnings() const override { return warnings_; }

  /// The notes in one; then for each storage its header, late because of the checksum in it, and its bytes; then the directory.
  std::vector<Segment> segments(ObjectId object) const override {
    const auto& file = files_[object];
    std::vector<Segment> out = {
        {.type = Segment::kLiteral, .offset = 0, .length = file.head.size(), .literal = file.head}};
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      size_t entry = kNotes + i;
      out.push_back({.type = Segment::kLate,
                     .offset = file.zip.local_header_offset(entry),
                     .length = file.zip.local_header_bytes(entry)});
      out.push_back({.type = Segment::kPayload,
                     .tensor = file.tensors[i],
                     .offset = file.zip.payload_offset(entry),
                     .length = want_.spec(file.tensors[i]).nbytes()});
    }
    out.push_back(
        {.type = Segment::kLate, .offset = file.zip.directory_offset(), .length = file.zip.directory_bytes()});
    return out;
  }

  Result<Bytes> late(ObjectId object, size_t segment, std::span<const Receipt> receipts) override {
    const auto& file = files_[object];
    size_t tensor = (segment - 1) / 2;
    if (tensor < file.tensors.size()) return file.zip.local_header(kNotes + tensor, receipts[1 + tensor].crc32);
    auto crcs = file.note_crcs;
    for (size_t i = 0; i < file.tensors.size(); ++i) crcs.push_back(receipts[1 + i].crc32);
    return file.zip.directory(crcs);
  }

  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override {
    std::vector<std::pair<std::string, Bytes>> out;
    if (cut_.index.empty()) return out;
    HubIndexWriter writer(metadata_);
    for (size_t i = 0; i < cut_.shards.size(); ++i)
      for (TensorId id : cut_.shards[i]) writer.add(want_.spec(id).name, objects_[i].key);
    out.emplace_back(cut_.index, writer.finish());
    return out;
  }
  std::vector<ObjectInfo> sealed() const override {
    return cut_.index.empty() ? std::vector<ObjectInfo>() : std::vector<ObjectInfo>{{cut_.index, kUnknown}};
  }

 private:
  struct File {
    std::vector<TensorId> tensors;  ///< one per storage
    std::vector<uint32_t> note_crcs;
    Bytes head;  ///< the notes with their headers
    ZipLayout zip{{}};
  };

  Status check_specs() const {
    for (TensorId id = 0; id < want_.size(); ++id) {
      auto spec = want_.spec(id);
      const auto& row = dtype_row(spec.dtype);
      auto refuse = [&](std::string message, std::string hint) {
        return fail(Code::kUnsupported, std::move(message))
            .at_tensor(std::string(spec.name))
            .with_hint(std::move(hint));
      };
      if (torch_dtype_name(spec.dtype).empty())
        return refuse(fmt::format("PyTorch has no type {}", row.name), "cast it on the way (--dtype)");
      if (row.block_elems > 1 && (spec.shape.empty() || spec.shape.back() % row.block_elems != 0))
        return refuse(fmt::format("rows of {} that end within a byte cannot be a tensor of PyTorch", row.name),
                      "cast it on the way (--dtype)");
      if (spec.shape.size() > kMostTorchDimensions)
        return refuse(fmt::format("a tensor of {} dimensions", spec.shape.size()),
                      fmt::format("at most {} can be read again", kMostTorchDimensions));
      if (!is_utf8(spec.name))
        return refuse("a pickle cannot hold a name that is not UTF-8", "rename it on the way (--rename)");
    }
    return {};
  }

  Status cut(const WriteOptions& options) {
    std::vector<TensorId> ids;
    std::vector<ShardItem> items;
    for (TensorId id = 0; id < want_.size(); ++id) {
      auto spec = want_.spec(id);
      ids.push_back(id);
      items.push_back({spec.nbytes(), want_.same_as(id), static_cast<uint32_t>(entry_bound(spec))});
    }
    SHARDWRIGHT_ASSIGN(cut_, cut_hub(want_, ids, items, options, kMaxTorchPickle - KiB, kTorchHub));
    warnings_ = cut_.warnings;
    if (cut_.header_capped)
      warnings_.push_back(fmt::format("more shards than by size alone: no pickle may be longer than {}",
                                      format_bytes(kMaxTorchPickle)));
    for (auto& file : cut_.files) objects_.push_back({file, 0});
    return {};
  }

  /// Of the index, as the hub writes it. A file alone has no place for it.
  Status take_metadata() {
    metadata_["total_size"] = cut_.total_bytes;
    for (const auto& key : want_.value_keys())
      if (key != "metadata" && key != "opaque")
        warnings_.push_back(fmt::format("a torch file has no place for '{}'; it is left out", key));
    const Value* value = want_.value("metadata");
    if (value == nullptr) return {};
    SHARDWRIGHT_ASSIGN(Json given, parse_json(value->data));
    if (!given.is_object()) return fail(Code::kInvalidArgument, "metadata is not a JSON object");
    given.erase("format");
    given.erase("total_size");
    if (cut_.index.empty() && !given.empty())
      warnings_.emplace_back("a torch file has no place for 'metadata'; it is left out");
    for (const auto& [key, item] : given.items()) metadata_[key] = item;
    return {};
  }

  void lay_out(size_t shard) {
    auto& file = files_.emplace_back();
    PickleWriter pickle;
    pickle.empty_dict();
    std::map<TensorId, size_t> storages;  // of those that others are tied to
    if (!cut_.shards[shard].empty()) pickle.mark();
    for (TensorId id : cut_.shards[shard]) {
      TensorId kept = want_.same_as(id);
      auto [known, fresh] = storages.try_emplace(kept, file.tensors.size());
      if (fresh) file.tensors.push_back(kept);
      pickle.text(want_.spec(id).name);
      write_tensor(pickle, want_.spec(id), known->second);
    }
    if (!cut_.shards[shard].empty()) pickle.set_items();
    const std::pair<std::string_view, Bytes> notes[kNotes] = {
        {"data.pkl", pickle.finish()}, {"byteorder", bytes_of("little")}, {"version", bytes_of("3\n")}};
    std::vector<ZipLayout::Entry> entries;
    for (const auto& [name, bytes] : notes)
      entries.push_back({std::string(kFolder) + std::string(name), bytes.size(), kDosEpoch, kAlignment});
    for (size_t i = 0; i < file.tensors.size(); ++i)
      entries.push_back(
          {fmt::format("{}data/{}", kFolder, i), want_.spec(file.tensors[i]).nbytes(), kDosEpoch, kAlignment});
    file.zip = ZipLayout(std::move(entries));
    for (size_t i = 0; i < kNotes; ++i) {
      file.note_crcs.push_back(crc32(notes[i].second));
      auto header = file.zip.local_header(i, file.note_crcs.back());
      file.head.insert(file.head.end(), header.begin(), header.end());
      file.head.insert(file.head.end(), notes[i].second.begin(), notes[i].second.end());
    }
    objects_[shard].size = file.zip.directory_offset() + file.zip.directory_bytes();
  }

  Catalog want_;
  HubCut cut_;
  Json metadata_ = Json::object();
  std::vector<ObjectInfo> objects_;
  std::vector<File> files_;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<std::unique_ptr<Draft>> draft_torch(const Catalog& want, const WriteOptions& options) {
  auto draft = std::make_unique<TorchDraft>(want);
  SHARDWRIGHT_TRY(draft->make(options));
  return Result<std::unique_ptr<Draft>>(std::move(draft));
}

}  // namespace shardwright
