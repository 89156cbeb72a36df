#include "shardwright/layout/tensor_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "shardwright/base/text.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {
namespace {

Error bad(std::string message) { return fail(Code::kInvalidArgument, std::move(message)); }

/// "axis 'model' of size 4", "axes 'data' x 'model' of size 2 x 4 = 8".
std::string axes_text(const DeviceMesh& mesh, std::span<const std::string> axes, int64_t parts) {
  if (axes.size() == 1) return fmt::format("axis '{}' of size {}", axes[0], parts);
  std::string sizes;
  for (const auto& name : axes)
    sizes += fmt::format("{}{}", sizes.empty() ? "" : " x ", mesh.shape()[*mesh.axis(name)]);
  return fmt::format("axes '{}' of size {} = {}", fmt::join(axes, "' x '"), sizes, parts);
}

}  // namespace

std::string TensorLayout::text(size_t rank) const {
  std::string out = "[";
  for (size_t d = 0; d < std::max(rank, dims.size()); ++d) {
    out += d == 0 ? "" : ", ";
    out += d < dims.size() && !dims[d].empty() ? fmt::format("{}", fmt::join(dims[d], "+")) : "-";
  }
  return out + "]";
}

Status check_layout(const DeviceMesh& mesh, const TensorLayout& layout) {
  std::unordered_set<std::string_view> used;
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    for (const std::string& axis : layout.dims[d]) {
      if (!mesh.axis(axis)) {
        auto error = bad(fmt::format("dimension {} is laid over axis '{}', which the mesh does not have", d, axis))
                         .with_expected(mesh.text());
        auto near = nearest_names(axis, mesh.axis_names(), 1);
        if (!near.empty()) error.hint = "did you mean '" + near[0] + "'?";
        return error;
      }
      if (!used.insert(axis).second)
        return bad(fmt::format("axis '{}' is used twice, the second time for dimension {}", axis, d))
            .with_found(layout.text())
            .with_hint("a mesh axis splits one dimension of a tensor");
    }
  }
  return {};
}

Result<ShardGrid> ShardGrid::create(const DeviceMesh& mesh, const TensorLayout& layout,
                                    std::span<const int64_t> shape) {
  SHARDWRIGHT_TRY(check_layout(mesh, layout));
  if (layout.dims.size() > shape.size())
    return bad(fmt::format("the layout has {} dimensions, the tensor {}", layout.dims.size(), shape.size()))
        .with_found(fmt::format("layout {}", layout.text()))
        .with_expected(fmt::format("at most {} for shape {}", shape.size(), shape_text(shape)));
  ShardGrid grid;
  grid.shape_.assign(shape.begin(), shape.end());
  grid.splits_.resize(shape.size());
  grid.devices_ = mesh.size();
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    int64_t parts = 1;
    for (const std::string& name : layout.dims[d]) {
      size_t axis = *mesh.axis(name);
      grid.splits_[d].push_back({mesh.shape()[axis], mesh.stride(axis)});
      parts *= mesh.shape()[axis];
    }
    if (shape[d] % parts == 0) continue;
    grid.even_ = false;
    if (layout.uneven == Uneven::kChunk) continue;
    return bad(fmt::format("dimension {} of size {} is not divisible by {}", d, shape[d],
                           axes_text(mesh, layout.dims[d], parts)))
        .with_found("shape " + shape_text(shape))
        .with_expected(fmt::format("a multiple of {}", parts))
        .with_hint("choose another axis or dimension for it, or allow uneven shards");
  }
  return grid;
}

Box ShardGrid::box_of(int64_t position) const {
  Box box = Box::whole(shape_);
  for (size_t d = 0; d < shape_.size(); ++d) {
    int64_t& start = box.start[d];
    int64_t& length = box.extent[d];
    for (auto [size, stride] : splits_[d]) {
      int64_t chunk = length / size + (length % size != 0);
      int64_t before = std::min(chunk * (position / stride % size), length);
      start += before;
      length = std::min(chunk, length - before);
    }
  }
  return box;
}

std::vector<int64_t> ShardGrid::parts() const {
  std::vector<int64_t> parts(shape_.size(), 1);
  for (size_t d = 0; d < shape_.size(); ++d)
    for (auto [size, stride] : splits_[d]) parts[d] *= size;
  return parts;
}

int64_t ShardGrid::replicas() const {
  int64_t replicas = devices_;
  for (int64_t parts : parts()) replicas /= parts;
  return replicas;
}

}  // namespace shardwright
