#include "shardwright/format/keras_sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "shardwright/base/text.h"
#include "shardwright/format/hdf5_reader.h"
#include "shardwright/format/isolate.h"
#include "shardwright/format/keras_index.h"
#include "shardwright/format/keras_names.h"
#include "shardwright/format/keras_shards.h"

namespace shardwright {
namespace {

std::string beside(std::string_view index_key, const std::string& file) {
  auto directory = parent_path(index_key);
  return directory.empty() ? file : std::string(directory) + "/" + file;
}

std::string_view file_name(std::string_view key);

/// What a shard is called in a set that was renamed as a whole, the index and its shards: its number under the index's own name. ""
/// when its name has no number.
std::string renamed_shard(std::string_view index_key, const std::string& file) {
  constexpr std::string_view kEnding = ".weights.h5";
  if (!file.ends_with(kEnding)) return "";
  auto underscore = file.rfind('_');
  if (underscore == std::string::npos ||
      !is_decimal(std::string_view(file).substr(underscore + 1, file.size() - underscore - 1 - kEnding.size())))
    return "";
  return keras_base_name(file_name(index_key)) + file.substr(underscore);
}

/// Names of the shards as they are now: those of the index, or, when none of these is there, those of a renamed set if all of them are.
Result<std::vector<std::string>> present_names(Store& store, std::string_view index_key,
                                               const std::vector<std::string>& files) {
  std::vector<std::string> renamed;
  for (const auto& file : files) {
    SHARDWRIGHT_ASSIGN(auto size, store.size(beside(index_key, file)));
    auto name = renamed_shard(index_key, file);
    if (size || name.empty()) return files;
    SHARDWRIGHT_ASSIGN(auto renamed_size, store.size(beside(index_key, name)));
    if (!renamed_size) return files;
    renamed.push_back(name);
  }
  return renamed;
}

std::string_view file_name(std::string_view key) { return key.substr(key.rfind('/') + 1); }

/// The one index of a directory; "" when there is none, or several.
std::string only_index(Store& store) {
  auto keys = store.list("");
  std::string found;
  if (!keys.ok()) return found;
  for (const auto& key : *keys) {
    if (!key.ends_with(".weights.json") || key.find('/') != std::string::npos) continue;
    if (!found.empty()) return "";
    found = key;
  }
  return found;
}

Result<KerasIndex> read_index(Store& store, const std::string& key, uint64_t cap) {
  auto bytes = read_object(store, key, std::min(cap, kMaxKerasIndexBytes));
  if (!bytes.ok()) return std::move(bytes.error());
  auto index = parse_keras_index(text_of(*bytes));
  if (!index.ok()) {
    auto kind = describe_magic(text_of(*bytes).substr(0, 512));
    if (!kind.empty() && kind != "a JSON text") index.error().message = "not an index but " + kind;
    return std::move(index.error()).at_path(store.describe(key));
  }
  return index;
}

struct Shard {
  std::string key;
  Hdf5Region region;
  Hdf5Contents contents;
};

/// An index and its shards, read and compared.
class ShardedReader {
 public:
  ShardedReader(Store& store, std::string key, const OpenOptions& options)
      : store_(store), key_(std::move(key)), options_(options) {}
  Result<Catalog> read();

 private:
  Status check_present();
  Status read_shards();
  Status check_groups();
  Status check_shard(uint32_t number, std::vector<std::set<uint32_t>>& held);
  void check_extras();
  Result<Catalog> build();
  const size_t* entry_above(std::string_view path) const;
  Error at_index(Error error) const { return std::move(error).at_path(store_.describe(key_)); }

  Store& store_;
  std::string key_;
  const OpenOptions& options_;
  KerasIndex index_;
  std::vector<Shard> shards_;                        // one per index_.files; without tensors when it is missing
  std::unordered_map<std::string, size_t> entries_;  // by group, in index_.entries
};

/// Missing shards are named all at once, before the first is read.
Status ShardedReader::check_present() {
  SHARDWRIGHT_ASSIGN(auto present, present_names(store_, key_, index_.files));
  if (present != index_.files)
    options_.remark(at_index(fail(Code::kCorrupt,
                                  "the index has the names that its shards had before they were renamed: "
                                  "other readers do not find them")
                                 .with_hint("`shardwright reindex` makes a new index from the shards")));
  index_.files = std::move(present);
  std::vector<std::string> missing;
  for (const auto& file : index_.files) {
    shards_.push_back({beside(key_, file), {}, {}});
    SHARDWRIGHT_ASSIGN(auto size, store_.size(shards_.back().key));
    if (size) {
      shards_.back().region = {&store_, shards_.back().key, 0, *size};
    } else {
      missing.push_back(file);
    }
  }
  if (missing.empty()) return {};
  std::string names;
  for (size_t i = 0; i < missing.size() && i < 20; ++i) names += (i == 0 ? "" : ", ") + missing[i];
  if (missing.size() > 20) names += fmt::format(" and {} more", missing.size() - 20);
  return options_.report(
      at_index(fail(Code::kNotFound, fmt::format("{} of {} shards that the index names are missing: {}", missing.size(),
                                                 index_.files.size(), names))
                   .with_hint("fetch them again, or if the files were renamed, give the index its old names")));
}

Status ShardedReader::read_shards() {
  for (auto& shard : shards_) {
    if (shard.region.store == nullptr) continue;
    auto contents = read_hdf5(shard.region, options_);
    if (!contents.ok()) {
      SHARDWRIGHT_TRY(options_.report(std::move(contents.error())));
      continue;
    }
    shard.contents = std::move(*contents);
  }
  return {};
}

/// Keras names the group of the layer; a layer that saves itself may have groups of its own below.
const size_t* ShardedReader::entry_above(std::string_view path) const {
  for (auto group = parent_path(path); !group.empty(); group = parent_path(group))
    if (auto at = entries_.find(std::string(group)); at != entries_.end()) return &at->second;
  return nullptr;
}

Status ShardedReader::check_shard(uint32_t number, std::vector<std::set<uint32_t>>& held) {
  const auto& shard = shards_[number];
  std::string reported;
  for (const auto& tensor : shard.contents.tensors) {
    auto place = store_.describe(shard.key);
    if (is_vars_group(tensor.path))
      SHARDWRIGHT_TRY(options_.report(
          fail(Code::kCorrupt, "dataset where Keras has a group of variables").at_path(place).at_tensor(tensor.path)));
    auto entry = entry_above(tensor.path);
    auto listed =
        entry == nullptr ? std::span<const uint32_t>() : std::span<const uint32_t>(index_.entries[*entry].files);
    if (std::find(listed.begin(), listed.end(), number) != listed.end()) {
      held[*entry].insert(number);
      continue;
    }
    auto group = std::string(parent_path(tensor.path));
    if (group == reported) continue;  // once per group
    reported = group;
    SHARDWRIGHT_TRY(options_.report(
        fail(Code::kCorrupt, entry == nullptr ? "the index does not name this layer: other readers miss it"
                                              : "the index does not name this shard for this layer")
            .at_path(place)
            .at_tensor(tensor.name)
            .with_hint("`shardwright reindex` makes a new index from the shards")));
  }
  return {};
}

Status ShardedReader::check_groups() {
  for (size_t i = 0; i < index_.entries.size(); ++i)
    if (!entries_.try_emplace(index_.entries[i].group, i).second)
      return at_index(fail(Code::kCorrupt, "weight_map names '/" + index_.entries[i].group + "' twice"));
  std::vector<std::set<uint32_t>> held(index_.entries.size());
  for (uint32_t i = 0; i < shards_.size(); ++i) SHARDWRIGHT_TRY(check_shard(i, held));
  for (size_t i = 0; i < held.size(); ++i)
    for (uint32_t file : index_.entries[i].files)
      if (!held[i].contains(file) && shards_[file].region.store != nullptr)
        SHARDWRIGHT_TRY(
            options_.report(at_index(fail(Code::kCorrupt, "the index says that '" + index_.files[file] + "' holds '/" +
                                                              index_.entries[i].group + "', but it does not"))));
  return {};
}

/// What loads, and is odd all the same.
void ShardedReader::check_extras() {
  if (options_.remarked() == nullptr) return;
  double total = 0;
  for (const auto& shard : shards_)
    for (const auto& tensor : shard.contents.tensors)
      if (!tensor.again) total += keras_size(tensor.dtype, tensor.shape);
  if (index_.total_size && *index_.total_size != total)
    options_.remark(at_index(fail(Code::kCorrupt, "total_size is wrong")
                                 .with_found(python_float(std::max(0.0, *index_.total_size)))
                                 .with_expected(python_float(total))));
  auto base = keras_base_name(file_name(key_));
  std::set<std::string> named(index_.files.begin(), index_.files.end());
  if (!named.contains(keras_shard_file(base, 0)))
    options_.remark(at_index(fail(Code::kCorrupt, "the index was renamed without its shards: Keras looks for '" +
                                                      keras_shard_file(base, 0) + "'")));
  auto directory = parent_path(key_);
  auto keys = store_.list(directory.empty() ? "" : std::string(directory) + "/");
  if (!keys.ok()) return;
  for (const auto& key : *keys) {
    std::string_view file = file_name(key);
    if (parent_path(key) != directory || named.contains(std::string(file)) || !file.starts_with(base + "_") ||
        !file.ends_with(".weights.h5"))
      continue;
    auto number = file.substr(base.size() + 1, file.size() - base.size() - 1 - std::string_view(".weights.h5").size());
    if (is_decimal(number))
      options_.remark(fail(Code::kCorrupt, "shard that the index does not name").at_path(store_.describe(key)));
  }
}

Result<Catalog> ShardedReader::build() {
  CatalogBuilder builder;
  std::vector<std::string> members = {key_};
  std::vector<Hdf5Contents> files;
  for (auto& shard : shards_) {
    auto object = builder.add_object({shard.key, shard.region.store == nullptr ? kUnknown : shard.region.size});
    members.push_back(shard.key);
    if (shard.region.store != nullptr)
      SHARDWRIGHT_TRY(add_hdf5_tensors(builder, shard.contents, shard.region, object, options_));
    files.push_back(std::move(shard.contents));
  }
  set_hdf5_values(builder, files);
  if (!index_.metadata.empty()) builder.set_value("metadata", {Value::kJson, index_.metadata});
  builder.set_members(std::move(members), 1);
  auto catalog = builder.build();
  if (!catalog.ok()) return at_index(std::move(catalog.error()));
  return catalog;
}

Result<Catalog> ShardedReader::read() {
  SHARDWRIGHT_ASSIGN(index_, read_index(store_, key_, options_.max_metadata_bytes));
  SHARDWRIGHT_TRY(check_present());
  SHARDWRIGHT_TRY(read_shards());
  SHARDWRIGHT_TRY(check_groups());
  check_extras();
  return build();
}

}  // namespace

Confidence sniff_keras_sharded(Store& store, std::string_view at) {
  if (at.empty()) return only_index(store).empty() ? Confidence::kNo : Confidence::kMagic;
  if (!at.ends_with("weights.json")) return Confidence::kNo;
  auto size = store.size(at);
  return size.ok() && *size ? Confidence::kCertain : Confidence::kNo;
}

Result<Catalog> open_keras_sharded(Store& store, std::string_view at, const OpenOptions& options) {
  auto key = at.empty() ? only_index(store) : std::string(at);
  if (key.empty())
    return fail(Code::kNotFound, "no index X.weights.json here, or several").with_hint("name the one to open");
  return isolate_if_asked(options, [&](const OpenOptions& inner) { return ShardedReader(store, key, inner).read(); });
}

std::vector<std::string> members_keras_sharded(Store& store, std::string_view at) {
  auto key = at.empty() ? only_index(store) : std::string(at);
  if (key.empty()) return {};
  std::vector<std::string> members = {key};
  auto index = read_index(store, key, kMaxKerasIndexBytes);
  if (!index.ok()) return members;
  auto present = present_names(store, key, index->files);
  for (const auto& file : present.ok() ? *present : index->files)
    if (file.ends_with(".weights.h5")) members.push_back(beside(key, file));  // not whatever an index may name
  return members;
}

namespace {

/// Shards in a directory by base name, in order of their numbers.
std::map<std::string, std::map<uint64_t, std::string>> find_shards(std::span<const std::string> keys) {
  constexpr std::string_view kEnding = ".weights.h5";
  std::map<std::string, std::map<uint64_t, std::string>> found;
  for (const auto& key : keys) {
    if (key.find('/') != std::string::npos || !key.ends_with(kEnding)) continue;
    auto stem = key.substr(0, key.size() - kEnding.size());
    auto underscore = stem.rfind('_');
    auto number = underscore == std::string::npos ? "" : stem.substr(underscore + 1);
    if (number.size() < 5 || number.size() > 9 || !is_decimal(number)) continue;
    found[stem.substr(0, underscore)].emplace(std::stoull(number), key);
  }
  return found;
}

/// The datasets of one shard, under their paths: what an index is made of.
Result<Catalog> datasets_of(Store& store, const std::string& file, const OpenOptions& options) {
  return isolate_if_asked(options, [&](const OpenOptions& inner) -> Result<Catalog> {
    SHARDWRIGHT_ASSIGN(auto region, hdf5_region(store, file));
    SHARDWRIGHT_ASSIGN(auto contents, read_hdf5(region, inner));
    for (auto& tensor : contents.tensors) tensor.name = tensor.path;
    return hdf5_catalog(contents, region, inner);
  });
}

}  // namespace

Result<std::pair<std::string, Bytes>> rebuild_keras_index(Store& store, std::string_view at,
                                                          const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto keys, store.list(""));
  auto found = find_shards(keys);
  auto wanted = at.empty() && found.size() == 1 ? found.begin() : found.find(keras_base_name(at));
  if (wanted == found.end())
    return fail(Code::kNotFound,
                found.size() > 1 && at.empty() ? "several sets of Keras shards here" : "no Keras shards here")
        .with_expected("x_00000.weights.h5, x_00001.weights.h5, ...")
        .with_hint(found.empty() ? "" : "name the index, e.g. " + found.begin()->first + ".weights.json");
  auto key = at.empty() ? wanted->first + ".weights.json" : std::string(at);
  KerasIndexBuilder builder;
  double total = 0;
  for (const auto& [number, file] : wanted->second) {
    SHARDWRIGHT_ASSIGN(auto datasets, datasets_of(store, file, options));
    auto place = static_cast<uint32_t>(builder.index.files.size());
    builder.index.files.push_back(file);
    for (TensorId id = 0; id < datasets.size(); ++id) {
      auto spec = datasets.spec(id);
      builder.add(parent_path(spec.name), place);
      if (datasets.same_as(id) == id) total += keras_size(spec.dtype, spec.shape);
    }
  }
  builder.index.total_size = total;
  if (auto old = read_index(store, key, kMaxKerasIndexBytes); old.ok()) builder.index.metadata = old->metadata;
  return std::pair(key, bytes_of(format_keras_index(builder.index)));
}

}  // namespace shardwright
