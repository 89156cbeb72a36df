/// How a job lays out what it works on: data, variables, and the outputs of layers. Values, without a framework.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwright/layout/layout_map.h"

namespace shardwright {

/// A process's part of the input data: `id` of `count` shards.
struct DataShard {
  int64_t count = 1, id = 0;
  bool operator==(const DataShard&) const = default;
};

/// One axis of the mesh carries the batch. Data-parallel: every variable is whole on every device. Model-parallel: variables and outputs
/// are laid out by a map; what no rule names is whole everywhere. Thread-safe to read.
class Distribution {
 public:
  /// Every device holds a replica of the model. Errors: kInvalidArgument for a mesh of more than one axis.
  static Result<Distribution> data_parallel(DeviceMesh mesh);
  /// batch_axis "": the mesh's first. Errors: kInvalidArgument when the mesh has no such axis.
  static Result<Distribution> model_parallel(LayoutMap map, std::string_view batch_axis = "");

  const DeviceMesh& mesh() const { return map_.mesh(); }
  const LayoutMap& map() const { return map_; }
  const std::string& batch_axis() const { return batch_axis_; }
  /// Replicas of the model: the size of the batch axis.
  int64_t replicas() const;

  /// A batch of `rank` dimensions: the first is split by the batch axis. Errors: kInvalidArgument for rank 0.
  Result<TensorLayout> data_layout(size_t rank) const;
  /// For a variable made under this distribution; dims has `rank` entries. Errors: those of LayoutMap::find, and kInvalidArgument for a rule
  /// of more dimensions.
  Result<TensorLayout> variable_layout(std::string_view path, size_t rank) const;
  /// For an intermediate, by its own key; nullopt: left as it comes. Errors: those of LayoutMap::find.
  Result<std::optional<TensorLayout>> tensor_layout(std::string_view key) const;
  /// Of a layer: tensor_layout(path + "/output").
  Result<std::optional<TensorLayout>> output_layout(std::string_view layer_path) const;

  /// Which data a process reads. Processes hold equal, contiguous runs of mesh positions; those that share a replica read the same data.
  /// Errors: kInvalidArgument for a process out of range, and for processes that replicas and devices cannot be dealt out to evenly.
  Result<DataShard> data_shard(int64_t process, int64_t processes) const;

 private:
  Distribution(LayoutMap map, std::string batch_axis) : map_(std::move(map)), batch_axis_(std::move(batch_axis)) {}
  LayoutMap map_;  ///< without rules: data-parallel
  std::string batch_axis_;
};

/// The process that a mesh position belongs to when `processes` share the mesh in equal contiguous runs.
/// Errors: kInvalidArgument when they cannot, or the position is out of range.
Result<int64_t> process_of(const DeviceMesh& mesh, int64_t position, int64_t processes);

}  // namespace shardwright
