#include "shardwright/layout/distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardwright {
namespace {

using ::testing::HasSubstr;
using Dims = std::vector<std::vector<std::string>>;

Distribution model_parallel(std::vector<int64_t> shape, std::string_view batch = "") {
  LayoutMap map(*DeviceMesh::create(std::move(shape), {"batch", "model"}));
  EXPECT_TRUE(map.set("dense/kernel", {{{}, {"model"}}}).ok());
  EXPECT_TRUE(map.set("dense/output", {{{"batch"}, {"model"}}}).ok());
  return *Distribution::model_parallel(std::move(map), batch);
}

TEST(Distribution, DataParallelSplitsTheBatchAndNothingElse) {
  auto data = *Distribution::data_parallel(*DeviceMesh::create({8}, {"batch"}));
  EXPECT_EQ(data.replicas(), 8);
  EXPECT_EQ(data.data_layout(3)->dims, (Dims{{"batch"}, {}, {}}));
  EXPECT_EQ(data.variable_layout("dense/kernel", 2)->dims, (Dims{{}, {}}));
  EXPECT_EQ(*data.tensor_layout("dense/output"), std::nullopt);
}

TEST(Distribution, ModelParallelTakesLayoutsFromItsMap) {
  auto model = model_parallel({2, 4});
  EXPECT_EQ(model.batch_axis(), "batch");
  EXPECT_EQ(model.replicas(), 2);
  EXPECT_EQ(model.variable_layout("dense/kernel", 2)->dims, (Dims{{}, {"model"}}));
  EXPECT_EQ(model.variable_layout("dense/bias", 1)->dims, (Dims{{}}));
  EXPECT_EQ((*model.output_layout("dense"))->dims, (Dims{{"batch"}, {"model"}}));
  EXPECT_EQ(*model.output_layout("other"), std::nullopt);
  EXPECT_EQ(model.data_layout(2)->dims, (Dims{{"batch"}, {}}));
}

TEST(Distribution, WhatCannotBeIsRefused) {
  EXPECT_THAT(Distribution::data_parallel(*DeviceMesh::create({2, 4}, {"a", "b"})).error().text(),
              HasSubstr("one axis"));
  LayoutMap map(*DeviceMesh::create({2}, {"a"}));
  EXPECT_THAT(Distribution::model_parallel(map, "batch").error().text(), HasSubstr("no axis 'batch'"));
  auto model = model_parallel({2, 4});
  EXPECT_THAT(model.data_layout(0).error().text(), HasSubstr("scalar"));
  EXPECT_THAT(model.variable_layout("dense/kernel", 1).error().text(),
              HasSubstr("'dense/kernel': the layout has 2 dimensions"));
}

TEST(Distribution, DataShardsAsInKeras) {
  // 4 processes, 2 replicas: [0, 0, 1, 1]; 2 processes, 4 replicas: each its own.
  auto few = model_parallel({2, 4});
  std::vector<int64_t> ids;
  for (int64_t process = 0; process < 4; ++process) {
    auto shard = *few.data_shard(process, 4);
    EXPECT_EQ(shard.count, 2);
    ids.push_back(shard.id);
  }
  EXPECT_EQ(ids, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(*model_parallel({4, 2}).data_shard(1, 2), (DataShard{2, 1}));
  EXPECT_EQ(*few.data_shard(0, 1), (DataShard{1, 0}));
}

TEST(Distribution, ProcessesThatDoNotFitAreRefused) {
  auto model = model_parallel({2, 4});
  EXPECT_THAT(model.data_shard(0, 3).error().text(), HasSubstr("8 devices, 3 processes"));
  EXPECT_THAT(model.data_shard(2, 2).error().text(), HasSubstr("no such process"));
  EXPECT_THAT(model.data_shard(-1, 2).error().text(), HasSubstr("no such process"));
  EXPECT_THAT(model.data_shard(0, 0).error().text(), HasSubstr("evenly"));
  EXPECT_THAT(model_parallel({3, 4}).data_shard(0, 2).error().text(),
              HasSubstr("3 replicas along 'batch', 2 processes"));
  // Process 0 would hold the first devices of both batches.
  EXPECT_THAT(model_parallel({4, 2}, "model").data_shard(0, 2).error().text(), HasSubstr("major axis"));
}

TEST(Distribution, ProcessesHoldContiguousPositions) {
  auto mesh = *DeviceMesh::create({2, 4}, {"a", "b"});
  EXPECT_EQ(*process_of(mesh, 3, 4), 1);
  EXPECT_EQ(*process_of(mesh, 7, 1), 0);
  EXPECT_FALSE(process_of(mesh, 8, 4).ok());
  EXPECT_FALSE(process_of(mesh, 0, 3).ok());
}

}  // namespace
}  // namespace shardwright
