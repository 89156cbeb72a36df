/// What a map makes of a checkpoint, before any byte is read.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shardwright/layout/layout_map.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

struct TensorToLay {
  std::string_view name;
  DType dtype;
  std::span<const int64_t> shape;
  bool tied = false;  ///< its bytes are another's: it is laid out, and not counted
};

struct LayoutReport {
  /// From here on a tensor that no rule names is worth a word.
  static constexpr uint64_t kLargeBytes = 1 << 20;

  struct Row {
    std::optional<uint32_t> rule;     ///< number in the map; none: no rule, or a problem
    std::optional<ShardGrid> grid{};  ///< none: a problem
    uint64_t shard_bytes = 0;         ///< of the largest shard
  };
  std::vector<Row> rows;               ///< one per tensor, in order
  std::vector<uint64_t> device_bytes;  ///< by position
  std::vector<uint32_t> unmatched;     ///< tensors that no rule names: replicated
  std::vector<uint32_t> large;         ///< those of them that have kLargeBytes or more
  std::vector<uint32_t> unused_rules;  ///< name no tensor; those for layer outputs (".../output") are not meant to
  std::vector<Error> problems;         ///< one per tensor that cannot be laid out, with its name
};

/// Never fails: what is wrong is in problems. Time O(rules * distinct names) + O(devices) per tensor that splits unevenly.
LayoutReport report_layout(const LayoutMap& map, std::span<const TensorToLay> tensors);

/// The first problem, taken out of the report, with how many more there are; fine when there is none.
Status problem_of(LayoutReport& report);

/// Bytes of a box of a tensor of this shape. Errors: kInvalidArgument when it begins or ends within a block of a packed type (F4: two elements a byte).
Result<uint64_t> bytes_of_box(DType dtype, std::span<const int64_t> shape, const Box& box);

}  // namespace shardwright
