#include "shardwright/format/hdf5_reader.h"
#include "shardwright/format/isolate.h"

namespace shardwright {
namespace {

Confidence sniff(Store& store, std::string_view at) {
  if (at.empty()) return Confidence::kNo;
  auto region = hdf5_region(store, at);
  if (!region.ok()) return Confidence::kNo;
  auto superblock = find_hdf5_superblock(*region);
  // A version or size we cannot read is still HDF5, and says so when it is opened.
  return !superblock.ok() || *superblock ? Confidence::kMagic : Confidence::kNo;
}

Result<Catalog> open_here(Store& store, std::string_view at, const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto region, hdf5_region(store, at));
  SHARDWRIGHT_ASSIGN(auto contents, read_hdf5(region, options));
  return hdf5_catalog(contents, region, options);
}

Result<Catalog> open(Store& store, std::string_view at, const OpenOptions& options) {
  return isolate_if_asked(options, [&](const OpenOptions& inner) { return open_here(store, at, inner); });
}

std::vector<std::string> members(Store&, std::string_view at) { return {std::string(at)}; }

}  // namespace

const Format kHdf5 = {
    .name = "hdf5",
    .description = "any HDF5 file: numeric datasets by path, chunked and compressed ones too (read only)",
    .extensions = "*.h5, *.hdf5",
    .can = {.write = false, .sharded = false, .ties = true, .metadata = false, .subbyte = true},
    .sniff = sniff,
    .open = open,
    .members = members,
    .draft = nullptr,
};

}  // namespace shardwright
