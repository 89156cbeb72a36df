#include "shardwright/format/hdf5_reader.h"
#include "shardwright/format/isolate.h"
#include "shardwright/format/keras_archive.h"
#include "shardwright/format/keras_draft.h"
#include "shardwright/format/keras_names.h"
#include "shardwright/format/keras_sharded.h"

namespace shardwright {
namespace {

/// Keras's reader expects a group there.
Status check_vars(const Hdf5Contents& contents, const Hdf5Region& region, const OpenOptions& options) {
  for (const auto& tensor : contents.tensors)
    if (is_vars_group(tensor.path))
      SHARDWRIGHT_TRY(options.report(fail(Code::kCorrupt, "dataset where Keras has a group of variables")
                                         .at_path(region.store->describe(region.key))
                                         .at_tensor(tensor.path)));
  return {};
}

Confidence sniff_h5(Store& store, std::string_view at) {
  if (!at.ends_with(".weights.h5")) return Confidence::kNo;
  auto region = hdf5_region(store, at);
  if (!region.ok()) return Confidence::kNo;
  auto superblock = find_hdf5_superblock(*region);
  return !superblock.ok() || *superblock ? Confidence::kCertain : Confidence::kNo;
}

Result<Catalog> open_h5_here(Store& store, std::string_view at, const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto region, hdf5_region(store, at));
  SHARDWRIGHT_ASSIGN(auto contents, read_hdf5(region, options));
  SHARDWRIGHT_TRY(check_vars(contents, region, options));
  return hdf5_catalog(contents, region, options);
}

Result<Catalog> open_h5(Store& store, std::string_view at, const OpenOptions& options) {
  return isolate_if_asked(options, [&](const OpenOptions& inner) { return open_h5_here(store, at, inner); });
}

std::vector<std::string> members_file(Store&, std::string_view at) { return {std::string(at)}; }

}  // namespace

const Format kKerasH5 = {
    .name = "keras-h5",
    .description = "Keras 3 weights in one HDF5 file",
    .extensions = "*.weights.h5",
    .can = {.write = true, .sharded = false, .ties = true, .metadata = true, .subbyte = true},
    .sniff = sniff_h5,
    .open = open_h5,
    .members = members_file,
    .draft = draft_keras_h5,
};

const Format kKerasSharded = {
    .name = "keras-sharded",
    .description = "Keras 3 weights cut into shards, with an index",
    .extensions = "*.weights.json with *_00000.weights.h5, ...",
    .can = {.write = true, .sharded = true, .ties = true, .metadata = true, .subbyte = true},
    .sniff = sniff_keras_sharded,
    .open = open_keras_sharded,
    .members = members_keras_sharded,
    .draft = draft_keras_sharded,
    .rebuild_index = rebuild_keras_index,
};

const Format kKerasArchive = {
    .name = "keras",
    .description = "Keras 3 model archive; writing replaces the weights of an existing one",
    .extensions = "*.keras",
    .can = {.write = true, .sharded = false, .ties = true, .metadata = true, .subbyte = true},
    .sniff = sniff_keras_archive,
    .open = open_keras_archive,
    .members = members_file,
    .draft = draft_keras_archive,
    .check_sums = check_keras_archive,
};

}  // namespace shardwright
