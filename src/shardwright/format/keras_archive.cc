#include "shardwright/format/keras_archive.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/checksum.h"
#include "shardwright/base/text.h"
#include "shardwright/codec/codec.h"
#include "shardwright/format/hdf5_reader.h"
#include "shardwright/format/isolate.h"
#include "shardwright/format/keras_draft.h"
#include "shardwright/format/zip_member.h"
#include "shardwright/store/zip.h"

namespace shardwright {
namespace {

constexpr std::string_view kWeights = "model.weights.h5", kConfig = "config.json";
constexpr uint16_t kStored = 0;
constexpr uint64_t kMaxKeptBytes = 64 * MiB;
/// A member that claims so much, and so many times what is stored, is no file of a model.
constexpr uint64_t kBombBytes = 256 * MiB, kBombFactor = 100;
constexpr uint32_t kDosEpoch = 0x00210000;  // 1980-01-01 00:00, as Keras gives its JSON members

Result<const ZipMember*> find_weights(std::span<const ZipMember> members, const std::string& path) {
  const ZipMember* found = nullptr;
  for (const auto& member : members) {
    if (member.name != kWeights) continue;
    if (found != nullptr) return fail(Code::kCorrupt, "archive holds '" + member.name + "' twice").at_path(path);
    found = &member;
  }
  if (found != nullptr) return found;
  bool npz = std::any_of(members.begin(), members.end(),
                         [](const auto& member) { return member.name == "model.weights.npz"; });
  if (npz)
    return fail(Code::kUnsupported, "archive with npz weights, which Keras writes but cannot read").at_path(path);
  return fail(Code::kCorrupt, "archive holds no weights")
      .at_path(path)
      .with_expected("a member '" + std::string(kWeights) + "'");
}

bool is_bomb(const ZipMember& member) {
  return member.bytes > kBombBytes && member.bytes / kBombFactor > member.stored_bytes;
}

Result<Catalog> open_here(Store& store, std::string_view at, const OpenOptions& options) {
  std::string key(at), path = store.describe(at);
  SHARDWRIGHT_ASSIGN(auto members, read_zip(store, key));
  SHARDWRIGHT_ASSIGN(auto* weights, find_weights(members, path));
  if (weights->method != kStored)
    return fail(Code::kUnsupported,
                "weights are compressed inside the archive; they are read in place only when stored")
        .at_path(path)
        .at_offset(weights->offset)
        .with_hint("unpack it, `unzip " + key + " model.weights.h5`, and read that");
  Hdf5Region region{&store, key, weights->offset, weights->bytes};
  SHARDWRIGHT_ASSIGN(auto contents, read_hdf5(region, options));
  std::vector<Catalog::SideFile> side_files;
  for (const auto& member : members) {
    if (&member == weights || member.name.ends_with('/')) continue;
    bool safe = is_safe_relative_path(member.name);
    if (safe && !is_bomb(member))
      side_files.push_back({member.name, key, member.offset, member.stored_bytes,
                            member.method == kStored ? "" : "deflate", member.bytes});
    else
      options.remark(fail(Code::kUnsupported, fmt::format("member '{}' {}, and is not carried along", member.name,
                                                          safe ? "claims far more bytes than the archive has for it"
                                                               : "has no safe file name"))
                         .at_path(path));
  }
  return hdf5_catalog(contents, region, options, std::move(side_files));
}

class ArchiveDraft : public Draft {
 public:
  struct Part {
    std::string name;
    Bytes bytes;       ///< of a kept member
    uint32_t crc = 0;  ///< of a kept member
  };
  ArchiveDraft(Catalog want, std::string key, std::vector<Part> parts, size_t weights, Hdf5Layout layout,
               std::vector<std::string> warnings)
      : want_(std::move(want)),
        parts_(std::move(parts)),
        weights_(weights),
        layout_(std::move(layout)),
        zip_(entries()),
        warnings_(std::move(warnings)) {
    for (size_t i = 0; i < parts_.size(); ++i)
      headers_.push_back(i == weights_ ? Bytes() : zip_.local_header(i, parts_[i].crc));
    objects_.push_back({std::move(key), zip_.directory_offset() + zip_.directory_bytes()});
  }

  const Catalog& target() const override { return want_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  bool wants_crc32() const override { return true; }
  std::vector<std::string> warnings() const override { return warnings_; }
  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt>) override {
    return std::vector<std::pair<std::string, Bytes>>{};
  }

  std::vector<Segment> segments(ObjectId) const override {
    std::vector<Segment> out;
    auto literal = [&](uint64_t offset, View bytes) {
      if (!bytes.empty())
        out.push_back({.type = Segment::kLiteral, .offset = offset, .length = bytes.size(), .literal = bytes});
    };
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (i != weights_) {
        literal(zip_.local_header_offset(i), headers_[i]);
        literal(zip_.payload_offset(i), parts_[i].bytes);
        continue;
      }
      out.push_back(
          {.type = Segment::kLate, .offset = zip_.local_header_offset(i), .length = zip_.local_header_bytes(i)});
      auto inner = layout_.segments(zip_.payload_offset(i));
      out.insert(out.end(), inner.begin(), inner.end());
    }
    out.push_back({.type = Segment::kLate, .offset = zip_.directory_offset(), .length = zip_.directory_bytes()});
    return out;
  }

  Result<Bytes> late(ObjectId object, size_t segment, std::span<const Receipt> receipts) override {
    auto all = segments(object);
    uint32_t crc = weights_crc(all, receipts);
    if (all[segment].offset != zip_.directory_offset()) return zip_.local_header(weights_, crc);
    std::vector<uint32_t> crcs;
    for (size_t i = 0; i < parts_.size(); ++i) crcs.push_back(i == weights_ ? crc : parts_[i].crc);
    return zip_.directory(crcs);
  }

 private:
  std::vector<ZipLayout::Entry> entries() const {
    std::vector<ZipLayout::Entry> out;
    for (size_t i = 0; i < parts_.size(); ++i)
      out.push_back({parts_[i].name, i == weights_ ? layout_.size() : parts_[i].bytes.size(), kDosEpoch});
    return out;
  }

  /// The member's checksum from those of its segments and of the zeros between them.
  uint32_t weights_crc(std::span<const Segment> all, std::span<const Receipt> receipts) const {
    uint64_t at = zip_.payload_offset(weights_), end = at + layout_.size();
    uint32_t crc = 0;
    auto append = [&](uint32_t next, uint64_t length) { crc = crc32_combine(crc, next, length); };
    size_t receipt = 0;
    for (const auto& segment : all) {
      if (segment.type == Segment::kLate) continue;
      const auto& given = receipts[receipt++];
      if (segment.offset < at || segment.offset + segment.length > end || segment.length == 0) continue;
      append(crc32_of_zeros(segment.offset - at), segment.offset - at);
      append(given.crc32, segment.length);
      at = segment.offset + segment.length;
    }
    append(crc32_of_zeros(end - at), end - at);
    return crc;
  }

  Catalog want_;
  std::vector<Part> parts_;
  size_t weights_;
  Hdf5Layout layout_;
  ZipLayout zip_;
  std::vector<Bytes> headers_;
  std::vector<ObjectInfo> objects_;
  std::vector<std::string> warnings_;
};

Result<std::vector<ArchiveDraft::Part>> kept_parts(Store& store, const std::string& key) {
  SHARDWRIGHT_ASSIGN(auto members, read_zip(store, key));
  auto path = store.describe(key);
  bool model = std::any_of(members.begin(), members.end(), [](const auto& member) { return member.name == kConfig; });
  if (!model)
    return fail(Code::kInvalidArgument, "not a Keras archive: its weights cannot be replaced")
        .at_path(path)
        .with_expected("a member 'config.json'");
  uint64_t kept = 0;
  std::vector<ArchiveDraft::Part> parts;
  for (const auto& member : members) {
    if (member.name == kWeights) {
      parts.push_back({member.name, {}, 0});
      continue;
    }
    kept += std::max(member.bytes, member.stored_bytes);
    if (kept > kMaxKeptBytes || member.bytes > kMaxKeptBytes)
      return fail(Code::kUnsupported, "archive holds too much besides its weights")
          .at_path(path)
          .with_expected("at most " + format_bytes(kMaxKeptBytes));
    SHARDWRIGHT_ASSIGN(auto bytes, read_zip_member(store, key, member));
    parts.push_back({member.name, std::move(bytes), member.crc32});
  }
  return parts;
}

}  // namespace

Confidence sniff_keras_archive(Store& store, std::string_view at) {
  if (!at.ends_with(".keras")) return Confidence::kNo;
  Bytes first(4);
  ReadOp op{at, 0, first};
  auto size = store.size(at);
  if (!size.ok() || !*size || **size < first.size() || !store.read({&op, 1}).ok()) return Confidence::kNo;
  return text_of(first) == std::string_view("PK\x03\x04", 4) ? Confidence::kCertain : Confidence::kNo;
}

Result<Catalog> open_keras_archive(Store& store, std::string_view at, const OpenOptions& options) {
  return isolate_if_asked(options, [&](const OpenOptions& inner) { return open_here(store, at, inner); });
}

Status check_keras_archive(Store& store, std::string_view at, const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto members, read_zip(store, at));
  return check_zip_members(store, std::string(at), members, kMaxKeptBytes, options);
}

Result<std::unique_ptr<Draft>> draft_keras_archive(const Catalog& want, const WriteOptions& options) {
  auto name = options.name.empty() ? "model.keras" : options.name;
  if (options.base_store == nullptr)
    return fail(Code::kInvalidArgument, "weights alone make no .keras archive")
        .at_path(name)
        .with_hint("give an existing archive whose weights are to be replaced");
  if (options.max_shard_bytes != kUnknown)
    return fail(Code::kInvalidArgument, "a .keras archive has no shards").at_path(name);
  SHARDWRIGHT_ASSIGN(auto parts, kept_parts(*options.base_store, options.base_key));
  auto weights = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.name == kWeights; });
  if (weights == parts.end()) weights = parts.insert(parts.end(), {std::string(kWeights), {}, 0});
  auto position = static_cast<size_t>(weights - parts.begin());
  std::vector<std::string> warnings;
  SHARDWRIGHT_ASSIGN(auto layout, lay_out_keras_file(want, warnings));
  return std::make_unique<ArchiveDraft>(want, name, std::move(parts), position, std::move(layout), std::move(warnings));
}

}  // namespace shardwright
