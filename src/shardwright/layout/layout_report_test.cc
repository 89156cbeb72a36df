#include "shardwright/layout/layout_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardwright {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Shape = std::vector<int64_t>;

TEST(LayoutReport, TellsOfEveryTensorRuleAndDevice) {
  LayoutMap map(*DeviceMesh::parse("data=2,model=4"));
  for (auto [pattern, axis] : {std::pair{"kernel", "model"},
                               {"bias", "model"},
                               {"typo", "model"},
                               {"dense/output", "data"},
                               {"b.as$", "data"}})
    ASSERT_TRUE(map.set(pattern, {{{axis}}}).ok());
  Shape kernel{8, 3}, odd{10}, large{512, 512}, small{4};
  std::vector<TensorToLay> tensors = {{"kernel", DType::kF32, kernel}, {"embed", DType::kF32, large},
                                      {"scale", DType::kBF16, small},  {"kernel2", DType::kF32, odd},
                                      {"bias", DType::kF32, small},    {"kernel3", DType::kF32, kernel, true},
                                      {"x_bias", DType::kF32, small}};
  auto report = report_layout(map, tensors);
  ASSERT_EQ(report.rows.size(), 7u);
  EXPECT_EQ(report.rows[0].rule, 0u);
  EXPECT_THAT(report.rows[0].grid->shard_shape(), ElementsAre(2, 3));
  EXPECT_EQ(report.rows[0].shard_bytes, 24u);
  EXPECT_THAT(report.unmatched, ElementsAre(1, 2));
  EXPECT_THAT(report.large, ElementsAre(1));
  EXPECT_THAT(report.unused_rules, ElementsAre(2));
  // Tied bytes count once, tensors with a problem not at all.
  EXPECT_THAT(report.device_bytes, Each(24u + (1u << 20) + 8u + 4u));
  ASSERT_EQ(report.problems.size(), 2u);
  EXPECT_THAT(report.problems[0].text(),
              HasSubstr("tensor 'kernel2': dimension 0 of size 10 is not divisible by axis 'model' of size 4"));
  EXPECT_THAT(report.problems[1].text(), HasSubstr("tensor 'x_bias': two rules match: 'bias' and 'b.as$'"));
}

TEST(LayoutReport, UnevenShardsAreCountedDeviceByDevice) {
  LayoutMap map(*DeviceMesh::parse("x=4"));
  ASSERT_TRUE(map.set("w", {{{"x"}}, Uneven::kChunk}).ok());
  Shape shape{5, 2};
  std::vector<TensorToLay> tensors = {{"w", DType::kF32, shape}};
  auto report = report_layout(map, tensors);
  EXPECT_THAT(report.device_bytes, ElementsAre(16, 16, 8, 0));
  EXPECT_EQ(report.rows[0].shard_bytes, 16u);
}

TEST(LayoutReport, PackedTypesAreNotCutWithinABlock) {
  auto bytes = [](Shape shape, Box box) { return bytes_of_box(DType::kF4, shape, box).value_or(999); };
  EXPECT_EQ(bytes({4, 6}, {{0, 2}, {4, 2}}), 4u);
  EXPECT_EQ(bytes({4, 6}, {{0, 3}, {4, 3}}), 999u);
  EXPECT_EQ(bytes({4, 3}, {{2, 0}, {2, 3}}), 3u);
  EXPECT_EQ(bytes({4, 3}, {{1, 0}, {1, 3}}), 999u);
  EXPECT_EQ(bytes({4, 4, 3}, {{0, 1, 0}, {4, 2, 3}}), 999u);
  EXPECT_EQ(bytes({4, 4, 3}, {{0, 2, 0}, {4, 2, 3}}), 12u);
  EXPECT_EQ(*bytes_of_box(DType::kF32, Shape{3, 3}, Box{{1, 1}, {1, 1}}), 4u);
}

}  // namespace
}  // namespace shardwright
