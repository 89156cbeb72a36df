#include "shardwright/engine/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/engine/begin.h"

namespace shardwright {
namespace {

constexpr uint64_t kMaxManifestBytes = GiB;
constexpr int kVersion = 1;

Error bad_manifest(std::string_view key, std::string what) {
  return fail(Code::kCorrupt, "manifest: " + std::move(what))
      .at_path(std::string(key))
      .with_hint("`shardwright hash PATH --write` makes a new one");
}

std::string entry_text(const Manifest& manifest) {
  std::string out = "{\n   \"content\": {";
  bool first = true;
  for (const auto& [name, hash] : manifest.content) {
    out += fmt::format("{}\n    {}: {{\"dtype\": \"{}\", \"shape\": {}, \"hash\": \"{}\"}}", first ? "" : ",",
                       json_quote(name), dtype_row(hash.dtype).name, shape_text(hash.shape), hash.hash);
    first = false;
  }
  out += "\n   },\n   \"stored\": [";
  first = true;
  for (const auto& sum : manifest.stored) {
    out += fmt::format("{}\n    {{\"file\": {}, \"offset\": {}, \"length\": {}, \"crc32c\": \"{:08x}\"}}",
                       first ? "" : ",", json_quote(sum.file), sum.offset, sum.length, sum.crc32c);
    first = false;
  }
  return out + "\n   ]\n  }";
}

std::string document(const std::map<std::string, std::string>& entries) {
  std::string out = fmt::format("{{\n \"version\": {},\n \"checkpoints\": {{", kVersion);
  bool first = true;
  for (const auto& [name, text] : entries) {
    out += fmt::format("{}\n  {}: {}", first ? "" : ",", json_quote(name), text);
    first = false;
  }
  return out + "\n }\n}\n";
}

Result<Json> parse(std::string_view key, View bytes) {
  auto json = parse_json(text_of(bytes));
  if (!json.ok()) return bad_manifest(key, json.error().message);
  bool fits = json->is_object() && json->contains("version") && json->contains("checkpoints") &&
              (*json)["checkpoints"].is_object();
  if (!fits) return bad_manifest(key, "not of the expected shape");
  if ((*json)["version"] != kVersion)
    return fail(Code::kUnsupported, "manifest of another version")
        .at_path(std::string(key))
        .with_found((*json)["version"].dump())
        .with_expected(std::to_string(kVersion));
  return std::move(*json);
}

std::string text_field(const Json& object, const char* name) {
  auto at = object.is_object() ? object.find(name) : object.end();
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}
std::optional<uint64_t> number_field(const Json& object, const char* name) {
  auto at = object.is_object() ? object.find(name) : object.end();
  if (at == object.end() || !at->is_number_unsigned()) return std::nullopt;
  return at->get<uint64_t>();
}

Result<Manifest> parse_entry(std::string_view key, const Json& entry) {
  Manifest out;
  if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_object() || !entry.contains("stored") ||
      !entry["stored"].is_array())
    return bad_manifest(key, "entry without content and stored");
  for (const auto& [name, row] : entry["content"].items()) {
    TensorHash hash{name, DType::kU8, {}, text_field(row, "hash")};
    auto dtype = dtype_from_name(text_field(row, "dtype"));
    if (!dtype || hash.hash.size() != 32 || !row.contains("shape") || !row["shape"].is_array())
      return bad_manifest(key, "bad entry for tensor '" + name + "'");
    hash.dtype = *dtype;
    for (const auto& extent : row["shape"]) {
      if (!extent.is_number_integer()) return bad_manifest(key, "bad shape for tensor '" + name + "'");
      hash.shape.push_back(extent.get<int64_t>());
    }
    out.content.emplace(name, std::move(hash));
  }
  for (const auto& row : entry["stored"]) {
    auto offset = number_field(row, "offset"), length = number_field(row, "length");
    auto crc = text_field(row, "crc32c");
    if (!offset || !length || crc.size() != 8) return bad_manifest(key, "bad stored range");
    out.stored.push_back(
        {text_field(row, "file"), *offset, *length, static_cast<uint32_t>(std::strtoul(crc.c_str(), nullptr, 16))});
  }
  return out;
}

/// An entry that stays as it is: in our own form, or, where it is none that we know, as it stands.
std::string kept_text(const Json& entry) {
  auto manifest = parse_entry("", entry);
  return manifest.ok() ? entry_text(*manifest) : entry.dump();
}

}  // namespace

std::string manifest_entry(const Checkpoint& checkpoint) {
  return checkpoint.catalog.members().empty() ? checkpoint.at : checkpoint.catalog.members().front();
}

Result<std::optional<Manifest>> read_manifest(Store& store, std::string_view key, std::string_view entry) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return std::optional<Manifest>();
  SHARDWRIGHT_ASSIGN(auto bytes, read_object(store, key, kMaxManifestBytes));
  SHARDWRIGHT_ASSIGN(auto json, parse(store.describe(key), bytes));
  auto at = json["checkpoints"].find(std::string(entry));
  if (at == json["checkpoints"].end()) return std::optional<Manifest>();
  SHARDWRIGHT_ASSIGN(auto manifest, parse_entry(store.describe(key), *at));
  return std::optional(std::move(manifest));
}

Result<std::optional<Bytes>> manifest_without(Store& store, std::string_view key,
                                              const std::vector<std::string>& entries) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return std::optional<Bytes>();
  SHARDWRIGHT_ASSIGN(auto bytes, read_object(store, key, kMaxManifestBytes));
  auto json = parse(store.describe(key), bytes);
  if (!json.ok()) return std::optional<Bytes>();  // not ours to judge here; verify names it
  auto& checkpoints = (*json)["checkpoints"];
  size_t before = checkpoints.size();
  for (const auto& entry : entries) checkpoints.erase(entry);
  if (checkpoints.size() == before) return std::optional<Bytes>();
  if (checkpoints.empty()) return std::optional(Bytes());
  std::map<std::string, std::string> kept;
  for (const auto& [name, entry] : checkpoints.items()) kept.emplace(name, kept_text(entry));
  return std::optional(bytes_of(document(kept)));
}

Status check_receipts(const Checkpoint& checkpoint, const Manifest& manifest, std::span<const ObjectInfo> written,
                      const std::vector<Receipt>& receipts) {
  std::map<std::tuple<std::string, uint64_t, uint64_t>, uint32_t> sums;
  for (const auto& receipt : receipts)
    if (receipt.tensor != kNoTensor)
      sums[{written[receipt.place.object].key, receipt.place.offset, receipt.place.length}] = receipt.crc32c;
  for (const auto& sum : manifest.stored) {
    auto at = sums.find({sum.file, sum.offset, sum.length});
    if (at != sums.end() && at->second != sum.crc32c)
      return fail(Code::kCorrupt, "bytes read back differ from the bytes written")
          .at_path(checkpoint.store->describe(sum.file))
          .at_offset(sum.offset)
          .with_found(fmt::format("CRC-32C {:08x}", sum.crc32c))
          .with_expected(fmt::format("{:08x}", at->second))
          .with_hint("check the disk");
  }
  return {};
}

Status write_manifest(const Checkpoint& checkpoint, const Manifest& manifest, const JobOptions& options) {
  std::map<std::string, std::string> entries;
  auto& store = *checkpoint.store;
  SHARDWRIGHT_ASSIGN(auto begun,
                     begin_in_turn(store, "", options));  // before other entries are read, so that none is lost
  SHARDWRIGHT_ASSIGN(auto size, store.size(kManifestName));
  if (size) {
    SHARDWRIGHT_ASSIGN(auto bytes, read_object(store, kManifestName, kMaxManifestBytes));
    // A damaged manifest is replaced: that is what the error about it tells to do.
    auto json = parse(store.describe(kManifestName), bytes);
    if (!json.ok() && json.error().code != Code::kCorrupt) return std::move(json.error());
    if (json.ok())
      for (const auto& [name, entry] : (*json)["checkpoints"].items()) entries.emplace(name, kept_text(entry));
  }
  entries[manifest_entry(checkpoint)] = entry_text(manifest);
  auto text = document(entries);
  SHARDWRIGHT_TRY(write_object(*begun.transaction, kManifestName, view_of(text)));
  return begun.transaction->commit({{std::string(kManifestName)}, {}, {}});
}

}  // namespace shardwright
