/// What several verbs share.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/invocation.h"
#include "shardwright/format/catalog_summary.h"
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

/// One line for people and what to do next, or one JSON object of type "finding".
void print_finding(Output& output, const Error& finding);

/// "1 tensor", "12 tensors".
std::string counted(uint64_t count, std::string_view noun);

}  // namespace shardwright::cli
