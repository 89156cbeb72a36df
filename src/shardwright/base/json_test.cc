#include "shardwright/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace shardwright {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

Error error_of(std::string_view text) {
  auto json = parse_json(text);
  return json.ok() ? fail(Code::kInternal, "parsed: " + json->dump()) : json.error();
}

TEST(ParseJson, KeepsOrderTypesAndPrecision) {
  auto json = parse_json(R"( {"z":1,"a":[true,null,"x\u00e9\n",-2,1.5,{}],"m":{"k":[]}} )");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->dump(), "{\"z\":1,\"a\":[true,null,\"x\u00e9\\n\",-2,1.5,{}],\"m\":{\"k\":[]}}");
  auto numbers = parse_json("[18446744073709551615,-9223372036854775808,9007199254740993]");
  ASSERT_TRUE(numbers.ok());
  EXPECT_EQ((*numbers)[0].get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE((*numbers)[0].is_number_unsigned());
  EXPECT_EQ((*numbers)[1].get<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ((*numbers)[2].get<uint64_t>(), 9007199254740993u);                    // 2^53 + 1: no double has it
  EXPECT_TRUE(parse_json("1000000000000000019884624838656")->is_number_float());  // in tokenizer_config.json files
}

TEST(ParseJson, ScalarsAreDocuments) {
  EXPECT_EQ(parse_json("7")->get<int>(), 7);
  EXPECT_EQ(parse_json("\"a\"")->get<std::string>(), "a");
  EXPECT_TRUE(parse_json("null")->is_null());
  EXPECT_TRUE(parse_json("[]")->is_array());
  EXPECT_TRUE(parse_json("{}")->is_object());
}

TEST(ParseJson, DuplicateKeysAnywhere) {
  Error top = error_of(R"({"a":1, "b":2, "a":3})");
  EXPECT_EQ(top.code, Code::kCorrupt);
  EXPECT_EQ(top.offset, 15u);
  EXPECT_THAT(top.message, HasSubstr("\"a\""));
  EXPECT_EQ(error_of(R"([{"x":{"k":1,"k":1}}])").offset, 13u);
  // The same key, spelled differently.
  EXPECT_EQ(error_of(R"({"q\"":1,"q\u0022":1})").offset, 9u);
  EXPECT_EQ(error_of(R"({"\\":1,"\\":1})").offset, 8u);
  EXPECT_TRUE(parse_json(R"({"a":{"a":{"a":1}},"b":{"a":2}})").ok());
}

TEST(ParseJson, DepthIsLimited) {
  EXPECT_TRUE(parse_json(std::string(128, '[') + std::string(128, ']')).ok());
  Error deep = error_of(std::string(129, '[') + std::string(129, ']'));
  EXPECT_EQ(deep.code, Code::kCorrupt);
  EXPECT_EQ(deep.offset, 128u);
  EXPECT_EQ(error_of(std::string(10'000'000, '[')).offset, 128u);
  std::string objects;
  for (int i = 0; i < 129; ++i) objects += "{\"a\":";
  EXPECT_EQ(error_of(objects).offset, 128u * 5);
}

TEST(ParseJson, SyntaxErrorsHaveTheirOffset) {
  struct Case {
    std::string text;
    uint64_t offset;
  };
  for (const Case& c : std::vector<Case>{{"", 0},
                                         {"  ", 2},
                                         {"{\"a\":", 5},
                                         {"{\"a\" 1}", 5},
                                         {"[1,]", 3},
                                         {"[1] x", 4},
                                         {"[1][", 3},
                                         {"{'a':1}", 1},
                                         {"[NaN]", 1},
                                         {"[Infinity]", 1},
                                         {"// c\n1", 0},
                                         {"[1]\0[2]"s, 3},
                                         {"\"\0\""s, 1}}) {
    Error error = error_of(c.text);
    EXPECT_EQ(error.code, Code::kCorrupt) << c.text;
    EXPECT_EQ(error.offset, c.offset) << c.text << ": " << error.text();
    EXPECT_THAT(error.message, testing::Not(HasSubstr("json.exception")));
  }
}

TEST(ParseJson, NumbersMustBeFinite) {
  EXPECT_EQ(error_of("[1, 1e999]").code, Code::kCorrupt);
  EXPECT_EQ(error_of("-1e400").code, Code::kCorrupt);
  EXPECT_EQ(error_of("[01]").code, Code::kCorrupt);
  EXPECT_EQ(error_of("[+1]").code, Code::kCorrupt);
  EXPECT_EQ(parse_json("1e-999")->get<double>(), 0.0);
}

TEST(ParseJson, StringsMustBeUtf8) {
  EXPECT_EQ(error_of("[\"a\x80\"]").code, Code::kCorrupt);
  EXPECT_EQ(error_of("[\"\xed\xa0\x80\"]").code, Code::kCorrupt);
  EXPECT_EQ(error_of("[\"\xc0\xaf\"]").code, Code::kCorrupt);
  EXPECT_EQ(error_of(R"(["\ud800"])").code, Code::kCorrupt);
  EXPECT_EQ(error_of("[\"\n\"]").code, Code::kCorrupt);
  EXPECT_EQ(parse_json(R"("\ud83d\ude00")")->get<std::string>(), "\U0001f600");
}

TEST(ParseJson, MessagesStayShort) {
  EXPECT_LT(error_of("[\"" + std::string(1'000'000, 'x')).message.size(), 1000u);
  EXPECT_LT(error_of("{\"a\":1,}" + std::string(1'000'000, 'x')).message.size(), 1000u);
}

TEST(ParseJson, ManyKeysAreNotQuadratic) {
  std::string text = "{";
  for (int i = 0; i < 50'000; ++i) text += "\"key" + std::to_string(i) + "\":{\"a\":[1,2]},";
  text += "\"end\":0}";
  auto json = parse_json(text);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->size(), 50'001u);
  EXPECT_EQ(json->dump(), text);
}

/// Agrees with the library's own parser about what is valid, whatever is done to a document (but NUL, depth and duplicates).
TEST(ParseJson, AgreesWithTheLibraryOnBrokenText) {
  auto seed = std::random_device()();
  std::mt19937 random(seed);
  const std::string whole = R"({"a":[1,-2.5e3,"x\u00e9\\"],"b":{"c":null,"d":[true,false]},"e":"é"})";
  int valid = 0;
  for (int i = 0; i < 5'000; ++i) {
    std::string text = whole;
    for (auto n = random() % 3; n > 0; --n) text[random() % text.size()] = "{}[]\",:0 1e\\x-"[random() % 14];
    if (random() % 4 == 0) text.resize(random() % text.size());
    Json expected = Json::parse(text, nullptr, false);
    auto json = parse_json(text);
    if (json.ok()) {
      ++valid;
      ASSERT_EQ(*json, expected) << text << " seed " << seed;
    } else {
      ASSERT_TRUE(expected.is_discarded() || json.error().message.find("twice") != std::string::npos)
          << text << " seed " << seed;
      ASSERT_LE(json.error().offset, text.size());
    }
  }
  EXPECT_GT(valid, 100);
}

}  // namespace
}  // namespace shardwright
