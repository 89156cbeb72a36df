/// Which variable goes into which shard: Keras's rule, exactly. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/tensor/dtype.h"

namespace shardwright {

/// Bytes that Keras counts: elements times bits over 8, a bool being one bit. For types it does not know, the bytes stored.
double keras_size(DType dtype, std::span<const int64_t> shape);

struct KerasSplit {
  std::vector<uint32_t> shard;    ///< of each variable
  uint32_t count = 1;             ///< shards; one even without variables
  std::vector<size_t> oversized;  ///< variables larger than the limit: alone in their shard (Keras refuses them)
  double total = 0;               ///< of all sizes, added in order
};
/// Greedy in the given order: a variable that would take the running sum over the limit opens the next shard. max_bytes kUnknown: one.
KerasSplit split_keras(std::span<const double> sizes, uint64_t max_bytes);

/// "x.weights.json" -> "x": the stem without any ".weights", as Keras makes it.
std::string keras_base_name(std::string_view index_file);
/// "x", 7 -> "x_00007.weights.h5".
std::string keras_shard_file(std::string_view base, uint32_t shard);

}  // namespace shardwright
