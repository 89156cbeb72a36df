/// .keras: a zip of config.json, metadata.json, model.weights.h5 and assets.
#pragma once

#include <memory>

#include "shardwright/format/format.h"

namespace shardwright {

/// Functions of the row kKerasArchive (format.h). The weights are read in place, at the offset of their stored member; the other members
/// are side files. Written archives keep every other member of options.base_key, in order (64 MiB of them at most), with the weights replaced.
Confidence sniff_keras_archive(Store& store, std::string_view at);
Result<Catalog> open_keras_archive(Store& store, std::string_view at, const OpenOptions& options);
Status check_keras_archive(Store& store, std::string_view at, const OpenOptions& options);
Result<std::unique_ptr<Draft>> draft_keras_archive(const Catalog& want, const WriteOptions& options);

}  // namespace shardwright
