#include "shardwright/format/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shardwright/base/text.h"
#include "shardwright/format/torch_legacy.h"
#include "shardwright/format/zip_member.h"

namespace shardwright {
namespace {

using namespace std::string_view_literals;

constexpr auto kZipMagic = "PK\3\4"sv;
constexpr auto kEndings = std::to_array({".bin"sv, ".pt"sv, ".pth"sv, ".ckpt"sv});
constexpr std::string_view kPickle = "data.pkl", kVersion = "version", kOtherVersion = ".data/version",
                           kByteOrder = "byteorder", kScript = "constants.pkl", kStorages = "data/";
constexpr int kOldestVersion = 1, kNewestVersion = 10;
constexpr uint64_t kMaxNote = 64;  // bytes of a record that is one word
constexpr uint16_t kStored = 0;

Result<Bytes> first_bytes(Store& store, std::string_view key, uint64_t most) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return fail(Code::kNotFound, "no such file").at_path(store.describe(key));
  Bytes head(std::min(*size, most));
  ReadOp op{key, 0, head};
  if (!head.empty()) SHARDWRIGHT_TRY(store.read({&op, 1}));
  return head;
}

/// The records of one archive, by the names that torch gives them.
class Archive {
 public:
  static Result<Archive> open(Store& store, const std::string& key) {
    Archive out(store, key);
    SHARDWRIGHT_ASSIGN(out.members_, read_zip(store, key));
    if (out.members_.empty()) return out.corrupt("zip archive without members");
    const auto& first = out.members_.front().name;
    auto folder = first.find('/');
    if (folder == first.npos || folder == 0)
      return out.corrupt("zip archive is none of torch.save")
          .with_found("a member '" + first + "'")
          .with_expected("all members in one folder, data.pkl among them");
    out.prefix_ = first.substr(0, folder + 1);
    for (const auto& member : out.members_)
      if (!member.name.starts_with(out.prefix_) || !is_safe_relative_path(member.name))
        return out.corrupt("member of another folder than the first")
            .at_offset(member.offset)
            .with_found("'" + member.name + "'")
            .with_expected("a name that begins with '" + out.prefix_ + "'");
    std::ranges::sort(out.members_, {}, &ZipMember::name);
    return out;
  }

  const ZipMember* find(std::string_view name) const {
    auto wanted = prefix_ + std::string(name);
    auto at = std::ranges::lower_bound(members_, wanted, {}, &ZipMember::name);
    return at == members_.end() || at->name != wanted ? nullptr : &*at;
  }

  /// Text of a record that is one word; "" when there is none.
  Result<std::string> note(std::string_view name) const {
    const auto* member = find(name);
    if (member == nullptr) return std::string();
    if (member->bytes > kMaxNote || member->stored_bytes > kMaxNote)
      return corrupt("record '" + member->name + "' is too long").with_found(format_bytes(member->bytes));
    SHARDWRIGHT_ASSIGN(Bytes bytes, read_zip_member(store_, key_, *member, ZeroSum::kIsNone));
    std::string text(text_of(bytes));
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  Result<Bytes> pickle(uint64_t cap) const {
    const auto* member = find(kPickle);
    if (member == nullptr) return corrupt("no record 'data.pkl'").with_expected("an archive of torch.save");
    if (member->bytes > cap || member->stored_bytes > cap)
      return fail(Code::kUnsupported, "pickle is too large")
          .at_path(store_.describe(key_))
          .with_found(format_bytes(std::max(member->bytes, member->stored_bytes)))
          .with_expected("at most " + format_bytes(cap));
    return read_zip_member(store_, key_, *member, ZeroSum::kIsNone);
  }

  Error corrupt(std::string message) const {
    return fail(Code::kCorrupt, std::move(message)).at_path(store_.describe(key_));
  }

 private:
  Archive(Store& store, std::string key) : store_(store), key_(std::move(key)) {}
  Store& store_;
  std::string key_, prefix_;
  std::vector<ZipMember> members_;  ///< by name
};

Status check_version(const Archive& archive, const std::string& path) {
  SHARDWRIGHT_ASSIGN(auto version, archive.note(kVersion));
  if (version.empty()) {
    SHARDWRIGHT_ASSIGN(version, archive.note(kOtherVersion));
  }
  if (version.empty()) return archive.corrupt("no record 'version'").with_expected("an archive of torch.save");
  bool digits = version.size() <= 4 && std::ranges::all_of(version, [](char c) { return c >= '0' && c <= '9'; });
  if (digits && std::stoi(version) >= kOldestVersion && std::stoi(version) <= kNewestVersion) return {};
  return fail(Code::kUnsupported, "archive of another version")
      .at_path(path)
      .with_found(json_quote(version))
      .with_expected(fmt::format("{} to {}", kOldestVersion, kNewestVersion));
}

/// Places of all storages; the pickle's sizes must be those of the records.
Status place_storages(const Archive& archive, TorchFile& file) {
  for (const auto& storage : file.storages.storages) {
    auto name = std::string(kStorages) + std::string(storage.key);
    const auto* member = archive.find(name);
    if (member == nullptr) return archive.corrupt("no record '" + name + "', which the pickle refers to");
    if (storage.bytes != kUnknown && storage.bytes != member->bytes)
      return archive.corrupt("record '" + name + "' is not as long as the pickle says")
          .at_offset(member->offset)
          .with_found(fmt::format("{} bytes", member->bytes))
          .with_expected(fmt::format("{} bytes", storage.bytes));
    file.places.push_back({member->offset, member->stored_bytes, member->bytes, member->method != kStored});
  }
  return {};
}

Result<TorchFile> read_archive(Store& store, const std::string& key, const OpenOptions& options) {
  auto path = store.describe(key);
  auto located = [&](Error error) {
    if (error.path.empty()) error.path = path;
    return error;
  };
  SHARDWRIGHT_ASSIGN(auto archive, Archive::open(store, key));
  if (archive.find(kScript) != nullptr)
    return fail(Code::kUnsupported, "a TorchScript program, not a checkpoint")
        .at_path(path)
        .with_hint("in torch: torch.save(torch.jit.load(path).state_dict(), ...)");
  SHARDWRIGHT_TRY(check_version(archive, path));
  TorchFile file;
  SHARDWRIGHT_ASSIGN(auto order, archive.note(kByteOrder));
  if (order != "little" && order != "big" && !order.empty())
    return archive.corrupt("record 'byteorder' is neither little nor big").with_found(json_quote(order));
  file.big_endian = order == "big";
  SHARDWRIGHT_ASSIGN(file.bytes, archive.pickle(std::min(options.max_metadata_bytes, kMaxTorchPickle)));
  auto pickle = Pickle::parse(file.bytes);
  if (!pickle.ok()) return located(std::move(pickle.error())).within("while its data.pkl was read");
  file.pickle = std::move(*pickle);
  if (file.pickle.bytes_used() != file.bytes.size())
    options.remark(located(fail(Code::kCorrupt, "bytes after the end of the pickle")));
  auto storages = TorchStorages::find(file.pickle, /*numbered=*/true);
  if (!storages.ok()) return located(std::move(storages.error()));
  file.storages = std::move(*storages);
  SHARDWRIGHT_TRY(place_storages(archive, file));
  return file;
}

/// The first member of an archive of torch.save is in a folder, and is one of these.
bool is_torch_zip(std::string_view head) {
  if (head.size() < 30) return false;
  auto name_bytes = load_le<uint16_t>(view_of(head.substr(26)));
  auto name = head.substr(30, name_bytes);
  auto record = name.substr(std::min(name.size(), name.find('/') + 1));
  if (record.size() == name.size() || name.find('/') == name.npos) return false;
  return record == kPickle || record == kVersion || record == kByteOrder || record.starts_with(kStorages) ||
         record.starts_with(".data/") || record.starts_with(".format_version") || record.starts_with("code/") ||
         record == kScript;
}

}  // namespace

Result<TorchFile> read_torch_file(Store& store, const std::string& key, const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto head, first_bytes(store, key, 512));
  auto file =
      text_of(head).starts_with(kZipMagic) ? read_archive(store, key, options) : read_torch_legacy(store, key, options);
  if (!file.ok()) return file;
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  file->key = key;
  file->size = size.value_or(0);
  return file;
}

Confidence sniff_torch_file(Store& store, std::string_view key) {
  auto head = first_bytes(store, key, 512);
  if (!head.ok()) return Confidence::kNo;
  auto text = text_of(*head);
  bool named = std::ranges::any_of(kEndings, [&](std::string_view ending) { return key.ends_with(ending); });
  if (is_torch_legacy(text) || (text.starts_with(kZipMagic) && is_torch_zip(text)))
    return named ? Confidence::kCertain : Confidence::kMagic;
  return named && (text.starts_with(kZipMagic) || may_be_torch_legacy(text)) ? Confidence::kName : Confidence::kNo;
}

Status check_torch_sums(Store& store, const std::string& key, const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto head, first_bytes(store, key, kZipMagic.size()));
  if (text_of(head) != kZipMagic) return {};  // the form before has none
  SHARDWRIGHT_ASSIGN(auto members, read_zip(store, key));
  return check_zip_members(store, key, members, kMaxTorchPickle, options, ZeroSum::kIsNone);
}

}  // namespace shardwright
