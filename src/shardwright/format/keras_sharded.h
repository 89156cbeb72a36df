/// Keras's sharded weights: an index and the shards beside it.
#pragma once

#include "shardwright/format/format.h"

namespace shardwright {

/// Functions of the row kKerasSharded (format.h).
Confidence sniff_keras_sharded(Store& store, std::string_view at);
Result<Catalog> open_keras_sharded(Store& store, std::string_view at, const OpenOptions& options);
std::vector<std::string> members_keras_sharded(Store& store, std::string_view at);
Result<std::pair<std::string, Bytes>> rebuild_keras_index(Store& store, std::string_view at,
                                                          const OpenOptions& options);

}  // namespace shardwright
