#include "shardwright/layout/distribution.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardwright {
namespace {

Error bad(std::string message) { return fail(Code::kInvalidArgument, std::move(message)); }

Status check_processes(const DeviceMesh& mesh, int64_t processes) {
  if (processes >= 1 && mesh.size() % processes == 0) return {};
  return bad("the devices cannot be dealt out evenly")
      .with_found(fmt::format("{} devices, {} processes", mesh.size(), processes));
}

}  // namespace

Result<Distribution> Distribution::data_parallel(DeviceMesh mesh) {
  if (mesh.rank() != 1)
    return bad("a data-parallel mesh has one axis")
        .with_found(mesh.text())
        .with_hint("for more axes use a model-parallel distribution; without rules it splits nothing but the batch");
  std::string axis = mesh.axis_names()[0];
  return Distribution(LayoutMap(std::move(mesh)), std::move(axis));
}

Result<Distribution> Distribution::model_parallel(LayoutMap map, std::string_view batch_axis) {
  const DeviceMesh& mesh = map.mesh();
  std::string axis = batch_axis.empty() ? mesh.axis_names()[0] : std::string(batch_axis);
  if (!mesh.axis(axis))
    return bad("the mesh has no axis '" + axis + "' for the batch").with_expected("one of " + mesh.text());
  return Distribution(std::move(map), std::move(axis));
}

int64_t Distribution::replicas() const { return mesh().shape()[*mesh().axis(batch_axis_)]; }

Result<TensorLayout> Distribution::data_layout(size_t rank) const {
  if (rank == 0) return bad("a scalar has no batch dimension to lay out");
  TensorLayout layout;
  layout.dims.resize(rank);
  layout.dims[0] = {batch_axis_};
  return layout;
}

Result<TensorLayout> Distribution::variable_layout(std::string_view path, size_t rank) const {
  SHARDWRIGHT_ASSIGN(auto rule, map_.find(path));
  TensorLayout layout = map_.layout_of(rule);
  if (layout.dims.size() > rank)
    return bad(fmt::format("the layout has {} dimensions, the variable {}", layout.dims.size(), rank))
        .at_tensor(std::string(path))
        .within("in the rule '" + map_.rules()[*rule].pattern + "'");
  layout.dims.resize(rank);
  return layout;
}

Result<std::optional<TensorLayout>> Distribution::tensor_layout(std::string_view key) const {
  SHARDWRIGHT_ASSIGN(auto rule, map_.find(key));
  return rule ? std::optional(map_.rules()[*rule].layout) : std::nullopt;
}

Result<std::optional<TensorLayout>> Distribution::output_layout(std::string_view layer_path) const {
  return tensor_layout(std::string(layer_path) + "/output");
}

Result<DataShard> Distribution::data_shard(int64_t process, int64_t processes) const {
  SHARDWRIGHT_TRY(check_processes(mesh(), processes));
  if (process < 0 || process >= processes)
    return bad("there is no such process")
        .with_found(std::to_string(process))
        .with_expected(fmt::format("0 to {}", processes - 1));
  int64_t all = replicas();
  if (std::max(all, processes) % std::min(all, processes) != 0)
    return bad("the replicas of the model cannot be dealt out to the processes evenly")
        .with_found(fmt::format("{} replicas along '{}', {} processes", all, batch_axis_, processes))
        .with_expected("one a multiple of the other");
  // Contiguous processes hold contiguous replicas only where the batch axis is the major one.
  size_t axis = *mesh().axis(batch_axis_);
  if (processes > 1 && mesh().stride(axis) * all != mesh().size())
    return bad("axis '" + batch_axis_ + "' is not the mesh's major axis: a process would hold parts of all the data")
        .with_found(mesh().text())
        .with_hint("make it the first axis of the mesh");
  if (all >= processes) return DataShard{processes, process};
  return DataShard{all, process / (processes / all)};
}

Result<int64_t> process_of(const DeviceMesh& mesh, int64_t position, int64_t processes) {
  SHARDWRIGHT_TRY(check_processes(mesh, processes));
  if (position < 0 || position >= mesh.size())
    return bad("the mesh has no such position").with_found(std::to_string(position));
  return position / (mesh.size() / processes);
}

}  // namespace shardwright
