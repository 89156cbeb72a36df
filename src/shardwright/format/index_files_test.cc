#include "shardwright/format/index_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/format/values_suite.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using ::testing::ElementsAre;
using testing_support::put;

std::unique_ptr<Store> holding(const std::string& key, const std::string& text) {
  auto store = open_memory_store();
  EXPECT_OK(put(*store, "", {{key, text}}));
  return store;
}

TEST(IndexFiles, OfTheHub) {
  auto store = holding(
      "m.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"b": "two.safetensors", "a": "one.safetensors", "c": "two.safetensors"}})");
  auto index = read_index_files(*store, "m.safetensors.index.json", MiB);
  ASSERT_OK(index);
  EXPECT_FALSE(index->groups);
  EXPECT_THAT(index->files, ElementsAre("two.safetensors", "one.safetensors"));
  ASSERT_EQ(index->entries.size(), 3u);
  EXPECT_EQ(index->entries[0].name, "b");
  EXPECT_THAT(index->entries[2].files, ElementsAre(0));
}

TEST(IndexFiles, OfKerasTextsAndLists) {
  auto store = holding("m.weights.json",
                       R"({"weight_map": {"/layers/a/vars": "m_0.h5", "/layers/b/vars": ["m_0.h5", "m_1.h5"]}})");
  auto index = read_index_files(*store, "m.weights.json", MiB);
  ASSERT_OK(index);
  EXPECT_TRUE(index->groups);
  EXPECT_THAT(index->files, ElementsAre("m_0.h5", "m_1.h5"));
  ASSERT_EQ(index->entries.size(), 2u);
  EXPECT_EQ(index->entries[1].name, "layers/b/vars");
  EXPECT_THAT(index->entries[1].files, ElementsAre(0, 1));
}

TEST(IndexFiles, RefusesWhatIsNone) {
  for (const char* key : {"m.weights.json", "m.safetensors.index.json"}) {
    for (const char* text : {"", "[]", R"({"weight_map": []})", R"({"weight_map": {"a": "../x"}})",
                             R"({"weight_map": {"a": "/x"}})", R"({"weight_map": {"a": 7}})"}) {
      auto index = read_index_files(*holding(key, text), key, MiB);
      SCOPED_TRACE(std::string(key) + text);
      EXPECT_CODE(index, Code::kCorrupt);
      EXPECT_NE(index.error().path.find(key), std::string::npos);
    }
    auto store = holding(key, std::string(100, ' '));
    EXPECT_CODE(read_index_files(*store, key, 99), Code::kResourceExhausted);
    EXPECT_CODE(read_index_files(*store, std::string("absent") + key, MiB), Code::kNotFound);
  }
}

ShardState state_of(const std::string& key, const std::string& text) {
  auto state = shard_state(*holding(key, text), key, MiB);
  EXPECT_OK(state);
  return *state;
}

/// A header of `json`, padded to 8 bytes, and that many bytes of data.
std::string safetensors(std::string json, size_t data) {
  json.resize((json.size() + 7) / 8 * 8, ' ');
  Bytes out;
  append_le<uint64_t>(out, json.size());
  return std::string(text_of(out)) + json + std::string(data, 'x');
}

TEST(ShardStates, OfSafetensors) {
  std::string whole = safetensors(R"({"a":{"dtype":"U8","shape":[10],"data_offsets":[0,10]}})", 10);
  auto state = state_of("x.safetensors", whole);
  EXPECT_EQ(state.kind, ShardState::kWhole);
  EXPECT_EQ(state.expected_bytes, whole.size());
  for (size_t size = 0; size < whole.size(); ++size) {
    state = state_of("x.safetensors", whole.substr(0, size));
    ASSERT_EQ(state.kind, ShardState::kCutShort) << size;
    ASSERT_EQ(state.size_bytes, size);
    ASSERT_EQ(state.expected_bytes, size < whole.size() - 10 ? kUnknown : whole.size()) << size;
  }
  EXPECT_EQ(state_of("x.safetensors", "<html>not found</html> and so on").kind, ShardState::kWrong);
  EXPECT_EQ(state_of("x.safetensors", safetensors("no JSON", 9)).kind, ShardState::kWrong);
  EXPECT_EQ(shard_state(*open_memory_store(), "x.safetensors", MiB)->kind, ShardState::kMissing);
}

TEST(ShardStates, OfTorch) {
  std::string whole(text_of(testing::read_file(testing::data_path("torch/basic_statedict.pt"))));
  EXPECT_EQ(state_of("x.bin", whole).kind, ShardState::kWhole);
  for (size_t size : {size_t{0}, size_t{100}, whole.size() - 1}) {
    auto state = state_of("x.bin", whole.substr(0, size));
    EXPECT_EQ(state.kind, ShardState::kCutShort) << size;
    EXPECT_EQ(state.expected_bytes, kUnknown);
  }
  EXPECT_EQ(state_of("x.bin", "<html>not found</html> and so on").kind, ShardState::kWrong);
}

TEST(ShardStates, OfHdf5) {
  std::string whole(text_of(testing::read_file(testing::data_path("keras/simple_sharded_00000.weights.h5"))));
  EXPECT_EQ(state_of("x.weights.h5", whole).kind, ShardState::kWhole);
  auto cut = state_of("x.weights.h5", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(cut.kind, ShardState::kCutShort);
  EXPECT_EQ(cut.expected_bytes, whole.size());
  EXPECT_EQ(state_of("x.weights.h5", whole.substr(0, 20)).expected_bytes, kUnknown);
  auto wrong = state_of("x.weights.h5", std::string(5000, '<'));
  EXPECT_EQ(wrong.kind, ShardState::kWrong);
  EXPECT_NE(wrong.problem, "");
}

}  // namespace
}  // namespace shardwright
