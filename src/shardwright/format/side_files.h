/// Files beside a checkpoint that belong to it and are no weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"
#include "shardwright/format/catalog.h"
#include "shardwright/store/store.h"

namespace shardwright {

/// True for what a copy carries along: configuration, tokenizer, code and licence, also in subdirectories ("1_Pooling/config.json"). Never weights of any
/// format, their indexes, our manifest, nor anything whose name or directory begins with a dot. By name alone.
bool is_side_file(std::string_view key);

/// Those below the directory that is the store's root, at most 1 GiB each.
Result<std::vector<Catalog::SideFile>> find_side_files(Store& store);

}  // namespace shardwright
