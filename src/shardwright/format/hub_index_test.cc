#include "shardwright/format/hub_index.h"

#include <gtest/gtest.h>

#include <random>

#include "shardwright/format/damage_for_test.h"

namespace shardwright {
namespace {

struct Read {
  Result<HubIndex> index = Error{};
  std::vector<std::pair<std::string, std::string>> map;
};

Read read(const std::string& text, HubIndexParser* parser = nullptr) {
  Read out;
  std::vector<std::pair<std::string, uint32_t>> lines;
  HubIndexEntry entry = [&](std::string_view name, uint32_t file) {
    lines.emplace_back(name, file);
    return Status();
  };
  out.index = parser == nullptr ? parse_hub_index(text, entry) : parse_hub_index_with(*parser, text, entry);
  if (out.index.ok())
    for (auto& [name, file] : lines) out.map.emplace_back(name, out.index->files[file]);
  return out;
}

using Map = std::vector<std::pair<std::string, std::string>>;

TEST(HubIndex, ReadsWhatTheHubWrites) {
  auto got = read(R"({
  "metadata": {
    "total_size": 12,
    "tied": "a"
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00002-of-00002.safetensors",
    "c": "model-00001-of-00002.safetensors"
  }
})");
  ASSERT_TRUE(got.index.ok()) << got.index.error().text();
  EXPECT_EQ(got.index->files.size(), 2u);
  EXPECT_EQ(got.index->entries, 3u);
  EXPECT_EQ(got.index->metadata["total_size"], 12);
  EXPECT_EQ(got.map, (Map{{"a", "model-00001-of-00002.safetensors"},
                          {"b", "model-00002-of-00002.safetensors"},
                          {"c", "model-00001-of-00002.safetensors"}}));
}

TEST(HubIndex, ReadsWhatTheWildHas) {
  Map one = {{"a", "x.safetensors"}};
  for (const char* text : {
           R"({"a":"x.safetensors"})",                 // the map alone
           R"({"weight_map":{"a":"x.safetensors"}})",  // no metadata
           R"({"weight_map":{"a":"x.safetensors"},"metadata":null})",
           R"({"metadata":[1],"weight_map":{"a":"x.safetensors"}})",
           R"({"metadata":{"total_size":72.0},"weight_map":{"a":"x.safetensors"}})",
           R"({"metadata":{"deep":{"er":[1,{"a":"b"}]}},"weight_map":{"\u0061":"x.safetensors"}})",
           R"({"version":"2","other":{"weight_map":{"z":"z"}},"weight_map":{"a":"x.safetensors"},"more":[{}]})",
       }) {
    auto got = read(text);
    ASSERT_TRUE(got.index.ok()) << text << got.index.error().text();
    EXPECT_EQ(got.map, one) << text;
  }
  EXPECT_TRUE(read(R"({"metadata":3,"weight_map":{}})").index->odd_metadata);
  EXPECT_FALSE(read(R"({"metadata":{},"weight_map":{}})").index->odd_metadata);
  EXPECT_EQ(read(R"({"x":1,"metadata":{"deep":{"er":[1]}},"weight_map":{}})").index->metadata["deep"]["er"][0], 1);
  EXPECT_TRUE(read(R"({"weight_map":{"a":"sub/x.safetensors"}})").index.ok());
}

TEST(HubIndex, RefusesWhatIsWrong) {
  struct Row {
    const char *text, *phrase;
  };
  for (auto [text, phrase] : std::initializer_list<Row>{
           {"", "not JSON"},
           {"[]", "not an object"},
           {"3", "not an object"},
           {"\"x\"", "not an object"},
           {R"({"metadata":{}})", "no weight_map"},
           {R"({"weight_map":[]})", "weight_map is not an object"},
           {R"({"weight_map":3})", "weight_map is not an object"},
           {R"({"weight_map":"a","x":1})", "weight_map is not an object"},
           {R"({"weight_map":{"a":1}})", "not a file name"},
           {R"({"weight_map":{"a":["x.safetensors"]}})", "not a file name"},
           {R"({"weight_map":{},"weight_map":{}})", "twice"},
           {R"({"metadata":{},"weight_map":{},"metadata":{}})", "twice"},
           {R"({"metadata":{"a":1,"a":2},"weight_map":{}})", "metadata"},
           {R"({"weight_map":{"a":"x.safetensors"}} x)", "not JSON"},
           {R"({"weight_map":{"a":"x.safetensors"},})", "not JSON"},
           {R"({"weight_map":{"a":"../x.safetensors"}})", "outside its directory"},
           {R"({"weight_map":{"a":"/tmp/x.safetensors"}})", "outside its directory"},
           {R"({"weight_map":{"a":"\\x.safetensors"}})", "outside its directory"},
           {R"({"weight_map":{"a":"C:x.safetensors"}})", "outside its directory"},
           {R"({"weight_map":{"a":"C:\\x.safetensors"}})", "outside its directory"},
           {R"({"weight_map":{"a":"\\\\server\\share\\x.safetensors"}})", "outside its directory"},
           {R"({"weight_map":{"a":"..\\x.safetensors"}})", "outside its directory"},
           {R"({"weight_map":{"a":""}})", "outside its directory"},
           {R"({"weight_map":{"a":"pytorch_model.bin"}})", "no safetensors file"},
           {R"({"../x":"y"})", "no safetensors file"},
           {"\xEF\xBB\xBF{\"weight_map\":{}}", "byte order mark"},
       }) {
    auto got = read(text);
    ASSERT_FALSE(got.index.ok()) << text;
    EXPECT_EQ(got.index.error().code, Code::kCorrupt) << text;
    EXPECT_NE(got.index.error().message.find(phrase), std::string::npos) << text << ": " << got.index.error().text();
  }
  EXPECT_FALSE(read(std::string("{\"weight_map\":{}}\0", 18)).index.ok());
  EXPECT_FALSE(read("{\"weight_map\":{\"\xff\":\"x.safetensors\"}}").index.ok());
  EXPECT_FALSE(read("{\"x\":" + std::string(200, '[') + std::string(200, ']') + ",\"weight_map\":{}}").index.ok());
}

TEST(HubIndex, BothParsersAgreeOnDamagedIndexes) {
  uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::string good =
      R"({"metadata": {"total_size": 12, "x": [1, "]"]}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}})";
  size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = damaged(good, random);
    auto fast_parser = HubIndexParser::kFast, full_parser = HubIndexParser::kFull;
    auto fast = read(text, &fast_parser);
    if (!fast.index.ok()) continue;
    ++accepted;
    auto full = read(text, &full_parser);
    ASSERT_TRUE(full.index.ok()) << text << full.index.error().text();
    EXPECT_EQ(fast.map, full.map) << text;
    EXPECT_EQ(fast.index->metadata, full.index->metadata) << text;
  }
  EXPECT_GT(accepted, 100u);
}

TEST(HubIndex, WriterMatchesPythonsJson) {
  // json.dumps({"metadata": {...}, "weight_map": {...}}, indent=2), run once by hand.
  Json metadata = Json::object();
  metadata["total_size"] = 12;
  metadata["ö"] = Json::parse(R"([1, {"a": 1.5}, [], {}])");
  HubIndexWriter writer(metadata);
  writer.add("w\"\x7f\n😀", "a.safetensors");
  writer.add("b", "b.safetensors");
  EXPECT_EQ(text_of(writer.finish()),
            "{\n  \"metadata\": {\n    \"total_size\": 12,\n    \"\\u00f6\": [\n      1,\n      {\n        \"a\": "
            "1.5\n      },\n"
            "      [],\n      {}\n    ]\n  },\n  \"weight_map\": {\n    \"w\\\"\\u007f\\n\\ud83d\\ude00\": "
            "\"a.safetensors\",\n"
            "    \"b\": \"b.safetensors\"\n  }\n}");
  EXPECT_EQ(text_of(HubIndexWriter(Json::object()).finish()), "{\n  \"metadata\": {},\n  \"weight_map\": {}\n}");
}

}  // namespace
}  // namespace shardwright
