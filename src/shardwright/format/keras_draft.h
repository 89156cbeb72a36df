/// Keras's HDF5 files to be written: what is common to X.weights.h5, the sharded form and .keras archives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardwright/format/hdf5_layout.h"

namespace shardwright {

/// Every stored tensor of `want` with the paths of all its names, in the order of `want`.
std::vector<Hdf5Plan> plan_keras_datasets(const Catalog& want);

/// Value "keras.names" of a catalogue; empty when absent or not an object of strings.
Hdf5Labels keras_labels(const Catalog& want);

/// One file with all of `want` and its metadata; what does not fit becomes a warning.
Result<Hdf5Layout> lay_out_keras_file(const Catalog& want, std::vector<std::string>& warnings);

/// Rows' draft functions (format.h). Errors: kInvalidArgument for a name the format does not have, or with options.strict for a tensor
/// over the limit; those of Hdf5Layout::make.
Result<std::unique_ptr<Draft>> draft_keras_h5(const Catalog& want, const WriteOptions& options);
Result<std::unique_ptr<Draft>> draft_keras_sharded(const Catalog& want, const WriteOptions& options);

}  // namespace shardwright
