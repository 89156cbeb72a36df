#include "shardwright/format/hub_shards.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "shardwright/base/json.h"

namespace shardwright {
namespace {

TEST(HubShards, ReproducesTheHubsSplits) {
  std::ifstream file(SHARDWRIGHT_TEST_DATA "/hub_split.json");
  std::stringstream text;
  text << file.rdbuf();
  auto cases = parse_json(text.str());
  ASSERT_TRUE(cases.ok()) << cases.error().text();
  ASSERT_GE(cases->size(), 200u);
  for (const auto& one : *cases) {
    std::vector<ShardItem> items;
    for (const auto& item : one["items"])
      items.push_back({item[0].get<uint64_t>(), item[1] < 0 ? kNoStorage : item[1].get<uint32_t>()});
    auto got = assign_shards(items, {one["limit"].get<uint64_t>()});
    EXPECT_EQ(got.total_bytes, one["total"].get<uint64_t>());
    ASSERT_EQ(got.shards.size(), one["files"].size()) << one;
    for (size_t i = 0; i < got.shards.size(); ++i) {
      EXPECT_EQ(got.shards[i], one["files"][i][1].get<std::vector<uint32_t>>()) << one;
      auto name = got.shards.size() == 1 ? "model.safetensors" : shard_file_name("model", i, got.shards.size());
      EXPECT_EQ(name, one["files"][i][0].get<std::string>());
    }
    EXPECT_FALSE(got.header_capped);
  }
}

TEST(HubShards, HeaderLimitCutsToo) {
  std::vector<ShardItem> items(5, {10, kNoStorage, 40});
  auto got = assign_shards(items, {1000, 100});
  EXPECT_TRUE(got.header_capped);
  EXPECT_EQ(got.shards, (std::vector<std::vector<uint32_t>>{{0, 1}, {2, 3}, {4}}));
  EXPECT_FALSE(assign_shards(items, {20, 100}).header_capped);  // the hub cuts there anyway
  EXPECT_EQ(assign_shards(items, {}).shards.size(), 1u);
}

TEST(HubShards, OversizedAreNamed) {
  std::vector<ShardItem> items = {{2}, {20}, {10}, {11}};
  EXPECT_EQ(assign_shards(items, {10}).oversized, (std::vector<uint32_t>{1, 3}));
}

TEST(HubShards, SumsThatOverflowDoNotWrap) {
  std::vector<ShardItem> items = {{~0ull - 1}, {~0ull - 1}};
  EXPECT_EQ(assign_shards(items, {~0ull - 1}).shards.size(), 2u);
}

TEST(HubShards, FileNames) {
  EXPECT_EQ(shard_file_name("model", 1, 17), "model-00002-of-00017.safetensors");
  EXPECT_EQ(shard_file_name("m.fp16", 123455, 200000), "m.fp16-123456-of-200000.safetensors");
  EXPECT_TRUE(is_shard_file_name("model-00002-of-00017.safetensors", "model"));
  EXPECT_FALSE(is_shard_file_name("model.fp16-00002-of-00017.safetensors", "model"));
  EXPECT_FALSE(is_shard_file_name("model.safetensors", "model"));
  EXPECT_FALSE(is_shard_file_name("model-2-of-17.safetensors", "model"));
  EXPECT_FALSE(is_shard_file_name("model-00002-of-00017.safetensors.index.json", "model"));
  EXPECT_FALSE(is_shard_file_name("model.safetensor", "model"));
}

}  // namespace
}  // namespace shardwright
