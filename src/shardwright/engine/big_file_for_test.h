/// For tests only: a checkpoint of one large tensor that costs nothing to make.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include "shardwright/engine/mesh_load.h"
#include "shardwright/store/testing.h"

namespace shardwright {

/// One float32 tensor "w" of zeros in a sparse file.
class BigFile : public ::testing::Test {
 protected:
  void make(std::vector<int64_t> shape) {
    shape_ = std::move(shape);
    bytes_ = static_cast<uint64_t>(shape_[0] * shape_[1] * 4);
    std::string path = directory_.at("w.bin");
    testing_support::write_file(path, "");
    ASSERT_EQ(::truncate(path.c_str(), static_cast<int64_t>(bytes_)), 0);
    checkpoint_.store = *open_file_store(directory_.path());
    CatalogBuilder builder;
    builder.add_object({"w.bin", bytes_});
    (void)*builder.add_tensor("w", DType::kF32, shape_);
    ASSERT_OK(builder.add_flat({Place::kExtent, -1, 0, 0, bytes_}, DType::kF32));
    checkpoint_.catalog = *builder.build();
  }
  std::vector<MeshTensor> laid(const std::string& mesh, const TensorLayout& layout) {
    return {{0, DType::kF32, *ShardGrid::create(*DeviceMesh::parse(mesh), layout, shape_)}};
  }
  static std::vector<MeshSeat> all(int64_t positions, Device& device) {
    std::vector<MeshSeat> seats;
    for (int64_t i = 0; i < positions; ++i) seats.push_back({i, &device});
    return seats;
  }

  testing_support::TemporaryDirectory directory_;
  Checkpoint checkpoint_;
  std::vector<int64_t> shape_;
  uint64_t bytes_ = 0;
};

}  // namespace shardwright
