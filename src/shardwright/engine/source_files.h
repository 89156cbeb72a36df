/// Files that tensors given by their places lie in.
#pragma once

#include <memory>

#include "shardwright/format/catalog.h"
#include "shardwright/store/store.h"

namespace shardwright {

/// A store in which the keys of the catalogue's objects and side files, absolute paths, can be read; an empty one when there are none.
/// Errors: kAborted: a file has not the size or the version that the catalogue says, or is gone.
Result<std::shared_ptr<Store>> open_source_files(const Catalog& tensors);

}  // namespace shardwright
