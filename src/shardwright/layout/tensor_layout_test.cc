#include "shardwright/layout/tensor_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "shardwright/tensor/dtype.h"

namespace shardwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Shape = std::vector<int64_t>;

DeviceMesh mesh_2x4() { return *DeviceMesh::create({2, 4}, {"data", "model"}); }

std::string refusal(const TensorLayout& layout, const Shape& shape) {
  auto grid = ShardGrid::create(mesh_2x4(), layout, shape);
  if (grid.ok()) return "accepted";
  EXPECT_EQ(grid.error().code, Code::kInvalidArgument);
  return grid.error().text();
}

TEST(ShardGrid, TheFirstAxisOfADimensionIsMajor) {
  auto grid = *ShardGrid::create(mesh_2x4(), {{{"model", "data"}, {}}}, Shape{16, 3});
  EXPECT_EQ(grid.box_of(0).text(), "[0:2, 0:3]");
  EXPECT_EQ(grid.box_of(1).text(), "[4:6, 0:3]");  // model moves by four
  EXPECT_EQ(grid.box_of(4).text(), "[2:4, 0:3]");  // data by two
  EXPECT_THAT(grid.parts(), ElementsAre(8, 1));
  EXPECT_EQ(grid.replicas(), 1);
}

TEST(ShardGrid, UnusedAxesReplicate) {
  auto grid = *ShardGrid::create(mesh_2x4(), {{{}, {"model"}}}, Shape{3, 8});
  EXPECT_EQ(grid.box_of(1), grid.box_of(5));
  EXPECT_EQ(grid.box_of(5).text(), "[0:3, 2:4]");
  EXPECT_EQ(grid.replicas(), 2);
  EXPECT_THAT(grid.shard_shape(), ElementsAre(3, 2));
}

TEST(ShardGrid, ScalarsEmptyTensorsAndShorterLayouts) {
  EXPECT_EQ(ShardGrid::create(mesh_2x4(), {}, Shape{})->box_of(7).text(), "[]");
  EXPECT_EQ(ShardGrid::create(mesh_2x4(), {}, Shape{5, 7})->box_of(7).text(), "[0:5, 0:7]");
  EXPECT_EQ(ShardGrid::create(mesh_2x4(), {{{"model"}}}, Shape{0, 7})->box_of(7).text(), "[0:0, 0:7]");
}

TEST(ShardGrid, IndivisibleDimensionsAreNamed) {
  std::string one = refusal({{{}, {"model"}}}, {8, 10});
  EXPECT_THAT(one, HasSubstr("dimension 1 of size 10 is not divisible by axis 'model' of size 4"));
  EXPECT_THAT(one, HasSubstr("[8, 10]"));
  EXPECT_THAT(refusal({{{"data", "model"}}}, {12}),
              HasSubstr("dimension 0 of size 12 is not divisible by axes 'data' x 'model' of size 2 x 4 = 8"));
}

TEST(ShardGrid, ContradictionsAreNamed) {
  EXPECT_THAT(refusal({{{"modl"}}}, {8}), HasSubstr("dimension 0 is laid over axis 'modl'"));
  EXPECT_EQ(check_layout(mesh_2x4(), {{{"modl"}}}).error().hint, "did you mean 'model'?");
  EXPECT_THAT(refusal({{{"model"}, {"model"}}}, {8, 8}), HasSubstr("axis 'model' is used twice"));
  EXPECT_THAT(refusal({{{"model", "model"}}}, {16}), HasSubstr("axis 'model' is used twice"));
  EXPECT_THAT(refusal({{{}, {}, {"model"}}}, {8, 8}), HasSubstr("the layout has 3 dimensions, the tensor 2"));
}

TEST(ShardGrid, ChunksAsTorchDoes) {
  // torch.chunk of 10 over 2, then each 5 over 4: 2, 2, 1, 0.
  auto grid = *ShardGrid::create(mesh_2x4(), {{{"data", "model"}}, Uneven::kChunk}, Shape{10});
  EXPECT_FALSE(grid.even());
  std::vector<std::string> boxes;
  for (int64_t i = 0; i < 8; ++i) boxes.push_back(grid.box_of(i).text());
  EXPECT_THAT(boxes, ElementsAre("[0:2]", "[2:4]", "[4:5]", "[5:5]", "[5:7]", "[7:9]", "[9:10]", "[10:10]"));
  EXPECT_TRUE(ShardGrid::create(mesh_2x4(), {{{"data", "model"}}, Uneven::kChunk}, Shape{16})->even());
}

TEST(ShardGrid, LargestLengthsDoNotOverflow) {
  auto grid = *ShardGrid::create(mesh_2x4(), {{{"data", "model"}}, Uneven::kChunk}, Shape{INT64_MAX});
  Box last = grid.box_of(7);
  EXPECT_EQ(last.start[0] + last.extent[0], INT64_MAX);
}

TEST(TensorLayout, Text) {
  TensorLayout layout{{{"data"}, {}, {"model", "data"}}};
  EXPECT_EQ(layout.text(), "[data, -, model+data]");
  EXPECT_EQ(TensorLayout{}.text(2), "[-, -]");
}

// Random meshes, layouts and shapes: every element is in as many boxes as there are replicas of it, and boxes are equal or disjoint.
TEST(ShardGrid, BoxesTileTheTensor) {
  std::mt19937 random(7);
  auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1)); };
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> sizes;
    std::vector<std::string> names;
    for (int64_t i = 0; i < 1 + upto(2); ++i) {
      sizes.push_back(1 + upto(3));
      names.push_back("axis" + std::to_string(i));
    }
    auto mesh = *DeviceMesh::create(sizes, names);
    Shape shape(static_cast<size_t>(upto(3)));
    for (auto& n : shape) n = upto(9);
    TensorLayout layout{std::vector<std::vector<std::string>>(shape.size()), Uneven::kChunk};
    std::shuffle(names.begin(), names.end(), random);
    for (const auto& name : names)
      if (!shape.empty() && upto(3) > 0) layout.dims[random() % shape.size()].push_back(name);
    auto grid = *ShardGrid::create(mesh, layout, shape);
    uint64_t held = 0;
    for (int64_t i = 0; i < mesh.size(); ++i) {
      Box a = grid.box_of(i);
      ASSERT_TRUE(Box::whole(shape).contains(a));
      held += a.elements();
      for (int64_t j = 0; j < i; ++j) {
        Box b = grid.box_of(j);
        ASSERT_TRUE(a == b || a.empty() || b.empty() || !intersect(a, b)) << a.text() << b.text();
      }
    }
    ASSERT_EQ(held, *element_count(shape) * static_cast<uint64_t>(grid.replicas()))
        << layout.text() << shape_text(shape);
  }
}

}  // namespace
}  // namespace shardwright
