// zarr 2 and 3, read only: an array or a group of them in a directory, or in an OCDBT database.
#include <algorithm>

#include "shardwright/format/format.h"
#include "shardwright/format/orbax_marks.h"
#include "shardwright/format/zarr_chunks.h"
#include "shardwright/store/ocdbt_format.h"

namespace shardwright {
namespace {

Confidence sniff(Store& store, std::string_view at) {
  if (!at.empty()) return Confidence::kNo;
  for (auto key : {kZarr2Array, std::string_view(".zgroup"), kZarr3Node})
    if (has_object(store, key)) return Confidence::kCertain;
  return has_object(store, kOcdbtManifest) ? Confidence::kMagic : Confidence::kNo;
}

/// Says where the rest is, when one process's part of a checkpoint was opened by itself.
Error of_part(Store& store, Error error) {
  if (error.code != Code::kNotFound || !is_process_database(store)) return error;
  error.hint =
      "this is what one process wrote of an Orbax checkpoint: open the directory above it. " + std::string(kMergeHint);
  return error;
}

Result<Catalog> open(Store& store, std::string_view, const OpenOptions& options) {
  SHARDWRIGHT_TRY(refuse_unfinished_orbax(store));
  CatalogBuilder builder;
  ZarrCatalog::Limits limits;
  limits.max_metadata_bytes = options.max_metadata_bytes;
  ZarrCatalog zarr(store, builder, limits);
  SHARDWRIGHT_ASSIGN(bool ocdbt, has_mark(store, kOcdbtManifest));
  std::unique_ptr<ZarrValues> values;
  if (ocdbt) {
    SHARDWRIGHT_ASSIGN(values, zarr_values_in_ocdbt(store, "", options.max_metadata_bytes));
  } else {
    values = zarr_values_in_files(store, "");
  }
  bool fill_missing = !values->made_by_orbax() && !is_made_by_orbax(store);
  SHARDWRIGHT_ASSIGN(auto keys, values->metadata_keys());
  std::string before;
  for (const auto& key : keys) {
    std::string path = zarr_array_path(key);
    if (builder.size() > 0 && path == before) continue;  // an array in both versions
    auto array = zarr.read_array(*values, path, !key.ends_with(kZarr2Array));
    if (!array.ok() && array.error().message == kZarrNoArray) continue;
    if (!array.ok()) return std::move(array.error());
    std::string name = path.empty() ? "array" : path;
    auto added = zarr.add(*values, path, name, **array, fill_missing);
    if (!added.ok()) return of_part(store, std::move(added.error()));
    before = path;
  }
  if (builder.size() == 0 && is_process_database(store))
    return of_part(store, fail(Code::kNotFound, "no array has its metadata here").at_path(store.describe("")));
  if (ocdbt) builder.tie_equal_extents();
  std::vector<std::string> members(keys.begin(), keys.end());
  if (ocdbt) members.assign(1, std::string(kOcdbtManifest));
  builder.set_members(std::move(members), std::min<size_t>(1, keys.size()));
  return builder.build();
}

std::vector<std::string> members(Store& store, std::string_view) {
  if (has_object(store, kOcdbtManifest)) return {std::string(kOcdbtManifest)};
  auto keys = store.list("");
  std::vector<std::string> out;
  if (keys.ok())
    for (auto& key : *keys) {
      auto name = std::string_view(key).substr(key.rfind('/') + 1);
      if (is_zarr_metadata_key(key) || name == ".zgroup" || name == ".zattrs" || name == ".zmetadata")
        out.push_back(std::move(key));
    }
  return out;
}

}  // namespace

const Format kZarr = {
    .name = "zarr",
    .description = "zarr 2 and 3: an array or a group, in files or in an OCDBT database (read only)",
    .extensions = "directory with .zgroup, .zarray, zarr.json or manifest.ocdbt",
    .can = {.write = false, .sharded = true, .ties = true, .metadata = false, .subbyte = false},
    .sniff = sniff,
    .open = open,
    .members = members,
    .draft = nullptr,
};

}  // namespace shardwright
