#include "shardwright/format/zarr_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "shardwright/base/text.h"
#include "shardwright/format/zarr_metadata.h"
#include "shardwright/store/ocdbt.h"

namespace shardwright {
namespace {

class FileValues : public ZarrValues {
 public:
  FileValues(Store& store, std::string_view directory) : store_(store), directory_(directory) {}

  Result<std::optional<ZarrValue>> find(std::string_view key) override {
    std::string object = directory_ + std::string(key);
    if (!is_safe_relative_path(object)) return std::optional<ZarrValue>();
    SHARDWRIGHT_ASSIGN(auto size, store_.size(object));
    if (!size) return std::optional<ZarrValue>();
    return std::optional<ZarrValue>({false, {}, std::move(object), 0, *size});
  }

  Result<std::vector<std::string>> metadata_keys() override {
    SHARDWRIGHT_ASSIGN(auto keys, store_.list(directory_));
    std::vector<std::string> out;
    for (const auto& key : keys)
      if (is_zarr_metadata_key(key)) out.push_back(key.substr(directory_.size()));
    return out;
  }
  Result<std::vector<std::string>> keys_below(std::string_view path) override {
    std::string below = directory_ + zarr_key(path, "");
    if (!below.empty() && !is_safe_relative_path(below.substr(0, below.size() - 1))) return std::vector<std::string>();
    SHARDWRIGHT_ASSIGN(auto keys, store_.list(below));
    for (auto& key : keys) key.erase(0, below.size());
    return keys;
  }
  bool lists_directories() const override { return false; }  // links to directories are not gone into
  std::string describe(std::string_view key) const override { return store_.describe(directory_ + std::string(key)); }

 private:
  Store& store_;
  const std::string directory_;
};

/// The whole tree in a few arenas, in key order.
class OcdbtValues : public ZarrValues {
 public:
  OcdbtValues(Store& store, std::string_view directory) : store_(store), directory_(directory) {}

  Status fill(uint64_t max_metadata_bytes) {
    OcdbtOptions options;
    options.max_metadata_bytes = max_metadata_bytes;
    SHARDWRIGHT_ASSIGN(auto database, OcdbtDatabase::open(store_, directory_, options));
    const auto& config = database->manifest().config;
    made_by_orbax_ = config.max_inline_bytes == 1024 && config.max_node_bytes == 100'000'000;
    return database->for_each([&](const OcdbtValue& value) -> Status {
      SHARDWRIGHT_TRY(charge(sizeof(Row) + value.key.size() + value.inline_value.size(), max_metadata_bytes));
      Row row{keys_.size(), value.offset, value.length, static_cast<uint32_t>(value.key.size()), kInline};
      if (value.is_inline) {
        row.offset = inline_.size();
        inline_.insert(inline_.end(), value.inline_value.begin(), value.inline_value.end());
      } else {
        row.file = file_index(value.file);
      }
      keys_ += value.key;
      rows_.push_back(row);
      return {};
    });
  }

  Result<std::optional<ZarrValue>> find(std::string_view key) override {
    auto row = lower_bound(key);
    if (row == rows_.end() || key_of(*row) != key) return std::optional<ZarrValue>();
    if (row->file == kInline)
      return std::optional<ZarrValue>({true, View(inline_).subspan(row->offset, row->length), "", 0, row->length});
    return std::optional<ZarrValue>({false, {}, files_[row->file], row->offset, row->length});
  }

  Result<std::vector<std::string>> metadata_keys() override {
    std::vector<std::string> out;
    for (const auto& row : rows_)
      if (is_zarr_metadata_key(key_of(row))) out.emplace_back(key_of(row));
    return out;
  }
  Result<std::vector<std::string>> keys_below(std::string_view path) override {
    std::string below = zarr_key(path, "");
    std::vector<std::string> out;
    for (auto row = lower_bound(below); row != rows_.end() && key_of(*row).starts_with(below); ++row)
      out.emplace_back(key_of(*row).substr(below.size()));
    return out;
  }
  bool lists_directories() const override { return true; }
  bool made_by_orbax() const override { return made_by_orbax_; }
  std::string describe(std::string_view key) const override {
    return store_.describe(directory_ + std::string(kOcdbtManifest)) + "!" +
           (is_utf8(key) ? std::string(key) : json_quote(key));
  }

 private:
  static constexpr uint32_t kInline = ~0u;
  Status charge(uint64_t bytes, uint64_t most) {
    taken_ += bytes;
    if (taken_ <= most) return {};
    return fail(Code::kResourceExhausted, "an OCDBT database of more keys than can be listed")
        .at_path(store_.describe(directory_ + std::string(kOcdbtManifest)))
        .with_found(fmt::format("{} keys and more", format_count(rows_.size())))
        .with_expected(fmt::format("at most {} of keys and values in nodes", format_bytes(most)));
  }
  struct Row {
    uint64_t key_offset, offset, length;
    uint32_t key_bytes, file;
  };
  std::string_view key_of(const Row& row) const {
    return std::string_view(keys_).substr(row.key_offset, row.key_bytes);
  }
  std::vector<Row>::const_iterator lower_bound(std::string_view key) const {
    return std::lower_bound(rows_.begin(), rows_.end(), key,
                            [&](const Row& row, std::string_view wanted) { return key_of(row) < wanted; });
  }
  uint32_t file_index(std::string_view file) {
    if (!files_.empty() && files_[last_] == file) return last_;
    auto [at, fresh] = index_.try_emplace(std::string(file), static_cast<uint32_t>(files_.size()));
    if (fresh) files_.emplace_back(file);
    return last_ = at->second;
  }

  Store& store_;
  const std::string directory_;
  std::string keys_;
  std::vector<Row> rows_;
  Bytes inline_;
  std::vector<std::string> files_;
  std::unordered_map<std::string, uint32_t> index_;
  uint32_t last_ = 0;
  uint64_t taken_ = 0;
  bool made_by_orbax_ = false;
};

}  // namespace

std::string zarr_key(std::string_view path, std::string_view key) {
  return std::string(path) + (path.empty() || path.ends_with('/') ? "" : "/") + std::string(key);
}

bool is_zarr_metadata_key(std::string_view key) {
  auto name = key.substr(key.rfind('/') + 1);
  return name == kZarr2Array || name == kZarr3Node;
}

std::string zarr_array_path(std::string_view key) {
  auto slash = key.rfind('/');
  return slash == key.npos ? "" : std::string(key.substr(0, slash));
}

Result<Bytes> read_zarr_value(Store& store, const ZarrValue& value, uint64_t cap) {
  if (value.length > cap)
    return fail(Code::kResourceExhausted, "value is larger than anything expected here")
        .at_path(store.describe(value.object));
  if (value.is_inline) return Bytes(value.inline_value.begin(), value.inline_value.end());
  SHARDWRIGHT_ASSIGN(auto size, store.size(value.object));
  if (!size) return fail(Code::kNotFound, "a data file is missing").at_path(store.describe(value.object));
  if (value.offset > *size || value.length > *size - value.offset)
    return fail(Code::kCorrupt, "a value lies beyond the end of its file")
        .at_path(store.describe(value.object))
        .at_offset(value.offset);
  Bytes bytes(value.length);
  ReadOp op{value.object, value.offset, bytes};
  SHARDWRIGHT_TRY(store.read({&op, 1}));
  return bytes;
}

std::unique_ptr<ZarrValues> zarr_values_in_files(Store& store, std::string_view directory) {
  return std::make_unique<FileValues>(store, directory);
}

Result<std::unique_ptr<ZarrValues>> zarr_values_in_ocdbt(Store& store, std::string_view directory,
                                                         uint64_t max_metadata_bytes) {
  auto values = std::make_unique<OcdbtValues>(store, directory);
  SHARDWRIGHT_TRY(values->fill(max_metadata_bytes));
  return Result<std::unique_ptr<ZarrValues>>(std::move(values));
}

}  // namespace shardwright
