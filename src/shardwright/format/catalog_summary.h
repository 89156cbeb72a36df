/// A catalogue in a few numbers: what `info` says.
#pragma once

#include <vector>

#include "shardwright/format/catalog.h"

namespace shardwright {

/// What one file of a checkpoint holds: tensors with at least one piece in it, and the bytes of their values there. Ties count once.
struct ShardContent {
  uint64_t tensors = 0, nbytes = 0;
};
std::vector<ShardContent> shard_contents(const Catalog& catalog);

struct DTypeContent {
  DType dtype;
  uint64_t tensors = 0, nbytes = 0;
};
/// In order of first appearance. Every name counts as a tensor, the bytes of a tie once.
std::vector<DTypeContent> dtype_contents(const Catalog& catalog);

/// Elements, ties counted once.
uint64_t parameter_count(const Catalog& catalog);

}  // namespace shardwright
