/// An HDF5 file as tensors: a walk over its groups that follows hard links only and trusts nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/format/hdf5_dataset.h"

namespace shardwright {

struct Hdf5GroupInfo {
  std::string path;  ///< without the first slash; "" is the root
  uint64_t address = 0;
  std::string label;  ///< attribute `name` of a group called `vars`: Keras's layer name; "" when none
  std::optional<std::string> tensor_name;  ///< attribute `shardwright_name`: what its dataset 0 is called here (a tie)
  uint64_t last_address = 0;               ///< highest address of a dataset object in it
};

struct Hdf5Contents {
  std::vector<Hdf5GroupInfo> groups;  ///< those that hold tensors, or have a label
  std::vector<Hdf5Tensor> tensors;    ///< in the order in which they were written, as far as the file tells
  std::string metadata;               ///< root attribute `shardwright_metadata`, JSON text; "" when none
};

/// Reads all metadata of the file. One name per hard link: names of one dataset have one address. Datasets that are no tensors are
/// skipped with a remark. Memory about 300 B per tensor, 24 B per chunk; 20 to 40 microseconds per dataset.
/// Errors: kCorrupt (not HDF5, truncated with both sizes, group cycles, impossible shapes), kUnsupported (soft and external links,
/// external and virtual datasets, filters, types, a group with two names; more than 4M links, 256 levels); with path and dataset.
Result<Hdf5Contents> read_hdf5(const Hdf5Region& region, const OpenOptions& options);

/// Adds all tensors to the builder; two names for one dataset are tied. Errors are reported through options.
Status add_hdf5_tensors(CatalogBuilder& builder, const Hdf5Contents& contents, const Hdf5Region& region,
                        ObjectId object, const OpenOptions& options);

/// Values of a catalogue read from these files: "keras.names", and "metadata" when that is a JSON object.
void set_hdf5_values(CatalogBuilder& builder, std::span<const Hdf5Contents> files);

/// The whole catalogue of one file. side_files: of the archive it lies in.
Result<Catalog> hdf5_catalog(const Hdf5Contents& contents, const Hdf5Region& region, const OpenOptions& options,
                             std::vector<Catalog::SideFile> side_files = {});

}  // namespace shardwright
