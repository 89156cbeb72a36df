/// JAX's PartitionSpec as JSON, as Orbax writes it: one entry per dimension.
#pragma once

#include "shardwright/base/json.h"
#include "shardwright/layout/tensor_layout.h"

namespace shardwright {

/// ["data", null, ["data", "model"]]: an axis, none, several.
Json partition_spec_json(const TensorLayout& layout);

/// Reads the same; "" and [] are none too. Axes are not looked up: check_layout or ShardGrid does that.
/// Errors: kInvalidArgument for anything else, with the number of the dimension.
Result<TensorLayout> parse_partition_spec(const Json& spec);

}  // namespace shardwright
