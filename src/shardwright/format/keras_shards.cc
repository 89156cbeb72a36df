#include "shardwright/format/keras_shards.h"

#include <fmt/format.h>

#include "shardwright/base/bytes.h"

namespace shardwright {

double keras_size(DType dtype, std::span<const int64_t> shape) {
  auto elements = element_count(shape).value_or(0);
  if (dtype == DType::kBool) return static_cast<double>(elements) / 8;
  return static_cast<double>(bytes_of_elements(dtype, elements).value_or(0));
}

KerasSplit split_keras(std::span<const double> sizes, uint64_t max_bytes) {
  KerasSplit out;
  double limit = static_cast<double>(max_bytes), filled = 0;
  bool alone = false, empty = true;
  for (size_t i = 0; i < sizes.size(); ++i) {
    bool over = max_bytes != kUnknown && sizes[i] > limit;
    filled += sizes[i];
    out.total += sizes[i];
    // After a variable that is alone even one of no bytes opens a shard: the sum is over the limit already.
    if (max_bytes != kUnknown && !empty && (filled > limit || alone)) {
      ++out.count;
      filled = sizes[i];
    }
    empty = false;
    alone = over;
    if (over) out.oversized.push_back(i);
    out.shard.push_back(out.count - 1);
  }
  return out;
}

std::string keras_base_name(std::string_view index_file) {
  std::string stem(index_file.substr(0, index_file.rfind('.')));
  constexpr std::string_view kWeights = ".weights";
  for (size_t at = stem.find(kWeights); at != std::string::npos; at = stem.find(kWeights, at))
    stem.erase(at, kWeights.size());
  return stem;
}

std::string keras_shard_file(std::string_view base, uint32_t shard) {
  return fmt::format("{}_{:05}.weights.h5", base, shard);
}

}  // namespace shardwright
