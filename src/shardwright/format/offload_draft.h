/// A folder for accelerate: one file a tensor, and the index. Private to offload_format.cc.
#pragma once

#include "shardwright/format/format.h"

namespace shardwright {

/// Errors: kUnsupported: types that torch has none of, or packs; names that are no file's.
Result<std::unique_ptr<Draft>> draft_offload(const Catalog& want, const WriteOptions& options);

}  // namespace shardwright
