// tests/data/keras_split.json was made by Keras's own store: tests/data/make_keras_split.py.
#include "shardwright/format/keras_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/base/json.h"
#include "shardwright/format/keras_index.h"
#include "shardwright/format/values_suite.h"

namespace shardwright {
namespace {

TEST(KerasShards, SplitsAndNamesAsKerasDoes) {
  auto cases = parse_json(text_of(testing::read_file(testing::data_path("keras_split.json"))));
  ASSERT_TRUE(cases.ok());
  ASSERT_GE(cases->size(), 40u);
  for (const auto& expected : *cases) {
    std::vector<double> sizes;
    for (const auto& variable : expected["variables"]) {
      auto shape = variable[3].get<std::vector<int64_t>>();
      sizes.push_back(keras_size(*parse_dtype(variable[2].get<std::string>()), shape));
    }
    auto split = split_keras(sizes, expected["limit"].get<uint64_t>());
    auto base = keras_base_name(expected["file"].get<std::string>());
    KerasIndexBuilder builder;
    for (uint32_t shard = 0; shard < split.count; ++shard) builder.index.files.push_back(keras_shard_file(base, shard));
    EXPECT_EQ(Json(builder.index.files), expected["shards"]);
    builder.index.total_size = split.total;
    for (size_t i = 0; i < sizes.size(); ++i)
      builder.add(expected["variables"][i][0].get<std::string>(), split.shard[i]);
    EXPECT_EQ(format_keras_index(builder.index), expected["index"].get<std::string>());
    EXPECT_TRUE(split.oversized.empty());
  }
}

TEST(KerasShards, TensorsOverTheLimitAreAlone) {
  std::vector<double> sizes = {200, 0, 50, 50, 300, 10};
  auto split = split_keras(sizes, 100);
  EXPECT_THAT(split.shard, ::testing::ElementsAre(0u, 1u, 1u, 1u, 2u, 3u));
  EXPECT_THAT(split.oversized, ::testing::ElementsAre(0u, 4u));
  EXPECT_EQ(split.count, 4u);
  EXPECT_EQ(split_keras(sizes, kUnknown).count, 1u);
}

}  // namespace
}  // namespace shardwright
