/// Which mesh axes split which dimensions of a tensor, and which box of it each device then holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwright/base/result.h"
#include "shardwright/layout/device_mesh.h"
#include "shardwright/tensor/box.h"

namespace shardwright {

/// Cap on the dimensions of a tensor, a mesh or a layout that a text names.
inline constexpr size_t kMostDimensions = 1024;

/// What becomes of a dimension that its axes do not divide.
enum class Uneven : uint8_t {
  kRefuse,  ///< an error, as in Keras and JAX
  kChunk,   ///< as torch: axis by axis, major first, chunks of ceil(length / axis size); the last ones shorter or empty
};

/// dims[d]: names of the mesh axes that split dimension d, major first; none: the dimension is whole everywhere. Dimensions beyond dims are
/// whole too, so {} is a replicated tensor of any rank. A value: nothing is checked here.
struct TensorLayout {
  std::vector<std::vector<std::string>> dims{};
  Uneven uneven = Uneven::kRefuse;
  bool operator==(const TensorLayout&) const = default;
  /// "[data, -, data+model]"; dimensions up to `rank` are shown.
  std::string text(size_t rank = 0) const;
};

/// Every axis is one of the mesh, and used once. Errors: kInvalidArgument naming dimension and axis.
Status check_layout(const DeviceMesh& mesh, const TensorLayout& layout);

/// A tensor's shape laid over a mesh: checked once, then every device's box in O(rank + axes) without failing.
class ShardGrid {
 public:
  /// Errors: kInvalidArgument naming dimension, axes and sizes: those of check_layout, a layout of more dimensions than the shape, and
  /// dimensions that do not divide when layout.uneven is kRefuse. A dimension of size 0 divides.
  static Result<ShardGrid> create(const DeviceMesh& mesh, const TensorLayout& layout, std::span<const int64_t> shape);
  /// REQUIRES: 0 <= position < size of the mesh. Boxes of two positions are equal (replicas) or disjoint; together they are the tensor.
  Box box_of(int64_t position) const;
  /// Extents of the largest box; that of every device when even().
  std::vector<int64_t> shard_shape() const { return box_of(0).extent; }
  bool even() const { return even_; }
  /// In how many parts each dimension is split.
  std::vector<int64_t> parts() const;
  /// Devices that hold the same box.
  int64_t replicas() const;

 private:
  struct Split {
    int64_t size, stride;  ///< of a mesh axis
  };
  std::vector<int64_t> shape_;
  std::vector<std::vector<Split>> splits_;  ///< per dimension, major first
  int64_t devices_ = 1;
  bool even_ = true;
};

}  // namespace shardwright
