/// What several verbs share.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/invocation.h"
#include "shardwright/format/format.h"

namespace shardwright::cli {

/// Opens the checkpoint named by an argument; says what recovery did.
Result<Checkpoint> open_argument(Invocation& invocation, std::string_view argument);

/// Where a tensor's bytes begin. shard: its file, empty when it is in several or in none; offset: nullopt when encoded, in parts or in
/// none of them.
struct Where {
  std::string_view shard;
  std::optional<uint64_t> offset;
};
Where where_is(const Catalog& catalog, TensorId tensor);

/// What one file of a checkpoint holds: tensors with at least one piece in it, and the bytes of their values there. Ties count once.
struct ShardContent {
  uint64_t tensors = 0, nbytes = 0;
};
std::vector<ShardContent> shard_contents(const Catalog& catalog);

/// Elements, ties counted once.
uint64_t parameter_count(const Catalog& catalog);

/// "1 tensor", "12 tensors".
std::string counted(uint64_t count, std::string_view noun);

}  // namespace shardwright::cli
