#include "shardwright/format/keras_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/format/values_suite.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;

TEST(KerasIndex, KerasFilesComeBackByteForByte) {
  for (const char* file : {"simple_sharded", "bf16_sharded", "opt_sharded"}) {
    auto bytes = testing::read_file(testing::data_path("keras/" + std::string(file) + ".weights.json"));
    auto index = parse_keras_index(text_of(bytes));
    ASSERT_TRUE(index.ok()) << index.error().text();
    EXPECT_EQ(format_keras_index(*index), text_of(bytes));
  }
}

TEST(KerasIndex, StringsAndListsAndUserMetadata) {
  auto index = parse_keras_index(R"({"metadata": {"total_size": 72.0, "format": "pt", "more": {"a": [1, 2]}},
    "weight_map": {"/layers/a/vars": ["x_00000.weights.h5", "x_00001.weights.h5"], "/vars": "x_00001.weights.h5"}})");
  ASSERT_TRUE(index.ok()) << index.error().text();
  EXPECT_THAT(index->files, ::testing::ElementsAre("x_00000.weights.h5", "x_00001.weights.h5"));
  EXPECT_EQ(index->entries[1].group, "vars");
  EXPECT_FALSE(index->entries[1].list);
  EXPECT_EQ(index->total_size, 72.0);
  EXPECT_EQ(index->metadata, R"({"format":"pt","more":{"a":[1,2]}})");
  // json.dumps({"metadata": {"total_size": 72.0, "format": "pt", "more": {"a": [1, 2]}}, ...}, indent=4)
  EXPECT_THAT(format_keras_index(*index),
              HasSubstr("        \"total_size\": 72.0,\n        \"format\": \"pt\",\n        \"more\": {\n            "
                        "\"a\": [\n                1,\n                2\n            ]\n        }\n    },\n"));
}

TEST(KerasIndex, FloatsArePythons) {
  // repr() in Python 3.11
  EXPECT_EQ(python_float(0.0), "0.0");
  EXPECT_EQ(python_float(0.125), "0.125");
  EXPECT_EQ(python_float(2056), "2056.0");
  EXPECT_EQ(python_float(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(1.5e20), "1.5e+20");
}

TEST(KerasIndex, LiesAreNamed) {
  struct Case {
    const char *text, *message;
  };
  for (const auto& [text, message] : std::initializer_list<Case>{
           {"[]", "no JSON object"},
           {"{\"metadata\": {}}", "no \"weight_map\""},
           {"{\"weight_map\": []}", "no \"weight_map\""},
           {"{\"weight_map\": {\"/vars\": 3}}", "weight_map entry '/vars': neither a file name nor a list"},
           {"{\"weight_map\": {\"/vars\": []}}", "names no file"},
           {"{\"weight_map\": {\"/vars\": [null]}}", "file name is no string"},
           {"{\"weight_map\": {\"/vars\": \"../x_00000.weights.h5\"}}", "not the name of a file beside the index"},
           {"{\"weight_map\": {\"/vars\": \"sub/x_00000.weights.h5\"}}", "not the name of a file beside the index"},
           {"{\"weight_map\": {\"/vars\": \"/etc/passwd\"}}", "not the name of a file beside the index"},
           {"{\"weight_map\": {\"/vars\": \"\"}}", "not the name of a file beside the index"},
           {"{\"weight_map\": {\"/vars\": \"a\", \"/vars\": \"b\"}}", "vars"},
           {"{\"weight_map\": {", ""}}) {
    auto index = parse_keras_index(text);
    ASSERT_FALSE(index.ok()) << text;
    EXPECT_EQ(index.error().code, Code::kCorrupt) << text;
    EXPECT_THAT(index.error().text(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace shardwright
