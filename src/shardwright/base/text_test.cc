#include "shardwright/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace shardwright {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::string_literals;

TEST(ParseSize, UnitsOfTenAndOfTwo) {
  EXPECT_EQ(*parse_size("5GB"), 5'000'000'000u);
  EXPECT_EQ(*parse_size("5GiB"), 5'368'709'120u);
  EXPECT_EQ(*parse_size("256mib"), 268'435'456u);
  EXPECT_EQ(*parse_size("3kb"), 3'000u);
  EXPECT_EQ(*parse_size("3KIB"), 3'072u);
  EXPECT_EQ(*parse_size("2TB"), 2'000'000'000'000u);
  EXPECT_EQ(*parse_size("2TiB"), 2'199'023'255'552u);
  EXPECT_EQ(*parse_size("17"), 17u);
  EXPECT_EQ(*parse_size("17b"), 17u);
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("4.2 MiB"), 4'404'019u);  // 4404019.2
}

TEST(ParseSize, FractionsAreTruncatedExactly) {
  EXPECT_EQ(*parse_size("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(*parse_size("1.9"), 1u);
  EXPECT_EQ(*parse_size("0.0019KB"), 1u);
  // 2^-40 TiB is one byte, and has 40 decimal digits.
  EXPECT_EQ(*parse_size("0.0000000000009094947017729282379150390625TiB"), 1u);
  EXPECT_EQ(*parse_size("0.0000000000009094947017729282379150390624TiB"), 0u);
}

TEST(ParseSize, RefusesTheRest) {
  for (auto text : {"",     "B",     "GB",    "5G", "5Gb/s", "5GBB", "-1",  "+1",   "1e9",   ".5GB", "5.",
                    "5.GB", "1.5.5", "5  GB", " 5", "5 ",    "0x10", "5PB", "five", "5,000", "nan"}) {
    auto size = parse_size(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_EQ(size.error().code, Code::kInvalidArgument);
    EXPECT_THAT(size.error().found, testing::HasSubstr(text));
  }
  EXPECT_FALSE(parse_size("5\0"s).ok());
}

TEST(ParseSize, SaysWhatMayHaveBeenMeant) {
  for (auto [text, meant] : {std::pair{"5G", "5GB"},
                             {"5Gi", "5GiB"},
                             {"1.5 gbytes", "1.5GB"},
                             {"300 MBs", "300MB"},
                             {"5BG", "5GB"},
                             {"7mbi", "7MiB"}})
    EXPECT_EQ(parse_size(text).error().hint, "did you mean '" + std::string(meant) + "'?") << text;
  for (auto text : {"5 parrots", "-5G", "GB", "5.GB", "1.5.5G", "99999999TiB", "5GB/s"})
    EXPECT_EQ(parse_size(text).error().hint, "") << text;
}

TEST(ParseSize, StopsAtTwoToThe63) {
  EXPECT_EQ(*parse_size("9223372036854775808"), 1ull << 63);
  EXPECT_FALSE(parse_size("9223372036854775809").ok());
  EXPECT_EQ(*parse_size("8388608TiB"), 1ull << 63);
  EXPECT_FALSE(parse_size("8388608.1TiB").ok());
  EXPECT_FALSE(parse_size("18446744073709551616").ok());
  EXPECT_FALSE(parse_size("18446744073709551616TiB").ok());
  EXPECT_FALSE(parse_size(std::string(100'000, '9')).ok());
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(4'404'019), "4.2 MiB");
  EXPECT_EQ(format_bytes(256 << 20), "256 MiB");
  EXPECT_EQ(format_bytes(123'456'789), "118 MiB");
  EXPECT_EQ(format_bytes(12'345'678), "11.8 MiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(format_bytes(~0ull), "16 EiB");
}

TEST(Format, CountsAndSeconds) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_seconds(1.239), "1.24 s");
  EXPECT_EQ(format_seconds(42.04), "42.0 s");
  EXPECT_EQ(format_seconds(59.97), "1m 00s");
  EXPECT_EQ(format_seconds(192), "3m 12s");
  EXPECT_EQ(format_seconds(3599.6), "1h 00m");
  EXPECT_EQ(format_seconds(2 * 3600 + 5 * 60 + 59), "2h 05m");
  EXPECT_EQ(format_seconds(-1), "0.00 s");
  EXPECT_EQ(format_seconds(std::nan("")), "0.00 s");
}

TEST(Glob, CrossesDotsAndSlashes) {
  EXPECT_TRUE(glob_match("*.weight", "model.layers.0.mlp.weight"));
  EXPECT_TRUE(glob_match("layers/*/0", "layers/dense/vars/0"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("a", ""));
  EXPECT_FALSE(glob_match("*.weight", "a.weight.1"));
  EXPECT_TRUE(glob_match("**a**", "xxaxx"));
  EXPECT_TRUE(glob_match("layer.?", "layer.7"));
  EXPECT_FALSE(glob_match("layer.?", "layer.17"));
  EXPECT_TRUE(glob_match("?", "\u00e9"));  // one character, two bytes
  EXPECT_FALSE(glob_match("??", "\u00e9"));
}

TEST(Glob, Sets) {
  EXPECT_TRUE(glob_match("h.[0-3].*", "h.2.w"));
  EXPECT_FALSE(glob_match("h.[0-3].*", "h.4.w"));
  EXPECT_TRUE(glob_match("[!a]b", "cb"));
  EXPECT_FALSE(glob_match("[!a]b", "ab"));
  EXPECT_TRUE(glob_match("[]]", "]"));
  EXPECT_TRUE(glob_match("[!]]", "x"));
  EXPECT_FALSE(glob_match("[!]]", "]"));
  EXPECT_TRUE(glob_match("[a-]", "-"));
  EXPECT_TRUE(glob_match("[", "["));  // never closed: itself
  EXPECT_TRUE(glob_match("a[b*", "a[bc"));
  EXPECT_FALSE(glob_match("[z-a]", "m"));
  EXPECT_TRUE(glob_match("[\u00e0-\u00ff]", "\u00e9"));
}

/// The definition, without a thought for time.
bool glob_by_definition(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*')
    return glob_by_definition(pattern.substr(1), name) ||
           (!name.empty() && glob_by_definition(pattern, name.substr(1)));
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         glob_by_definition(pattern.substr(1), name.substr(1));
}

TEST(Glob, EqualsItsDefinition) {
  auto seed = std::random_device()();
  std::mt19937 random(seed);
  int matched = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string pattern, name;
    for (auto n = random() % 7; n > 0; --n) pattern += "ab*?"[random() % 4];
    for (auto n = random() % 8; n > 0; --n) name += "ab"[random() % 2];
    bool expected = glob_by_definition(pattern, name);
    matched += expected;
    ASSERT_EQ(glob_match(pattern, name), expected) << pattern << " " << name << " seed " << seed;
  }
  EXPECT_GT(matched, 1000);
}

TEST(Glob, IsNotExponential) {
  std::string name(4'000, 'a'), pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", name));
  EXPECT_FALSE(glob_match("*" + std::string(5'000, '[') + "]", name));
}

size_t distance_by_definition(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0)
        d[i][j] = i + j;
      else
        d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
    }
  return d[a.size()][b.size()];
}

TEST(NearestNames, FindsTypingErrors) {
  std::vector<std::string> names = {"layers.0.mlp.weight", "layers.1.mlp.weight", "embed.weight", "layers.0.attn.bias",
                                    "lm_head.weight"};
  EXPECT_THAT(nearest_names("layers.0.mpl.weight", names), ElementsAre("layers.0.mlp.weight", "layers.1.mlp.weight"));
  EXPECT_THAT(nearest_names("embde.weight", names, 1), ElementsAre("embed.weight"));
  EXPECT_THAT(nearest_names("conv", names), IsEmpty());
  EXPECT_THAT(nearest_names("", names), IsEmpty());
  EXPECT_THAT(nearest_names("embed.weight", names, 0), IsEmpty());
  EXPECT_THAT(nearest_names("x", {}), IsEmpty());
}

TEST(NearestNames, EqualsItsDefinition) {
  auto seed = std::random_device()();
  std::mt19937 random(seed);
  auto word = [&] {
    std::string text;
    for (auto n = random() % 12; n > 0; --n) text += "abc"[random() % 3];
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> names(random() % 30);
    for (auto& name : names) name = word();
    std::string wanted = word();
    std::vector<std::string> expected;
    for (size_t distance = 0; distance <= wanted.size() / 3; ++distance)
      for (const auto& name : names)
        if (distance_by_definition(wanted, name) == distance && expected.size() < 3) expected.push_back(name);
    ASSERT_EQ(nearest_names(wanted, names), expected) << "wanted " << wanted << " seed " << seed;
  }
}

TEST(NearestNames, IsQuickForManyOrLongNames) {
  auto start = std::chrono::steady_clock::now();
  std::vector<std::string> names;
  for (int i = 0; i < 200'000; ++i) names.push_back("model.layers." + std::to_string(i) + ".self_attn.q_proj.weight");
  EXPECT_THAT(nearest_names("model.layers.77.self_attn.qproj.weight", names, 1),
              ElementsAre("model.layers.77.self_attn.q_proj.weight"));
  std::vector<std::string> hostile(1000, std::string(60'000, 'a') + std::string(5'000, 'b'));
  nearest_names(std::string(5'000, 'b') + std::string(60'000, 'a'), hostile);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // unbounded it takes hours
}

TEST(Json, QuoteEscapesAndRepairs) {
  EXPECT_EQ(json_quote("a\"b\\c\n\t\r\b\f\x01\x1f/"), R"("a\"b\\c\n\t\r\b\f\u0001\u001f/")");
  EXPECT_EQ(json_quote("\0"s), R"("\u0000")");
  EXPECT_EQ(json_quote("\u00fc\u6c34\U0001f600"), "\"\u00fc\u6c34\U0001f600\"");
  // As Python's bytes.decode("utf-8", "replace") gives them.
  EXPECT_EQ(json_quote("a\x80z"), "\"a\ufffdz\"");
  EXPECT_EQ(json_quote("\xe6\xb0"), "\"\ufffd\"");
  EXPECT_EQ(json_quote("\xf0\x9f\x98!"), "\"\ufffd!\"");
  EXPECT_EQ(json_quote("\xed\xa0\x80"), "\"\ufffd\ufffd\ufffd\"");
  EXPECT_EQ(json_quote("\xc0\xaf"), "\"\ufffd\ufffd\"");
  EXPECT_EQ(json_quote("\xf4\x90\x80\x80"), "\"\ufffd\ufffd\ufffd\ufffd\"");
}

TEST(Utf8, AcceptsExactlyTheCodePoints) {
  auto encode = [](uint32_t c) {
    auto byte = [](uint32_t v) { return static_cast<char>(v); };
    if (c < 0x80) return std::string{byte(c)};
    if (c < 0x800) return std::string{byte(0xc0 | c >> 6), byte(0x80 | (c & 63))};
    if (c < 0x10000) return std::string{byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 63)), byte(0x80 | (c & 63))};
    return std::string{byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 63)), byte(0x80 | (c >> 6 & 63)),
                       byte(0x80 | (c & 63))};
  };
  for (uint32_t c = 0; c < 0x120000; ++c) {
    bool valid = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
    ASSERT_EQ(is_utf8(encode(c)), valid) << std::hex << c;
  }
  EXPECT_FALSE(is_utf8("\xc1\xbf"));          // overlong
  EXPECT_FALSE(is_utf8("\xe0\x9f\xbf"));      // overlong
  EXPECT_FALSE(is_utf8("\xf0\x8f\xbf\xbf"));  // overlong
  EXPECT_FALSE(is_utf8("\xe6\xb0"));
  EXPECT_TRUE(is_utf8(""));
}

TEST(SafePath, NothingThatLeaves) {
  for (auto path :
       {"a", "a/b.safetensors", "model-00001-of-00002.safetensors", ".hidden", "a/..b/c..", "a..b", "\u00fc/x"})
    EXPECT_TRUE(is_safe_relative_path(path)) << path;
  for (auto path : {"",   "/",  "/a",   "..",  "../a", "a/..",  "a/../b",      ".",     "./a",   "a/.", "a//b",
                    "a/", "C:", "c:/a", "C:a", "a\\b", "..\\a", "\\\\host\\x", ".. /a", "a/...", " "})
    EXPECT_FALSE(is_safe_relative_path(path)) << path;
  EXPECT_FALSE(is_safe_relative_path("a\0b"s));
}

TEST(Magic, SaysWhatItIs) {
  EXPECT_EQ(describe_magic("version https://git-lfs.github.com/spec/v1\noid sha256:"),
            "a Git LFS pointer, not the file itself");
  EXPECT_EQ(describe_magic("\n  <!DOCTYPE html>"), "an HTML page");
  EXPECT_EQ(describe_magic("<HTML lang=en>"), "an HTML page");
  EXPECT_EQ(describe_magic("<?xml version='1.0'?><Error>"), "an XML document");
  EXPECT_EQ(describe_magic("\x80\x02}q"), "a Python pickle (torch .bin)");
  EXPECT_EQ(describe_magic("\x80\x04\x95"), "a Python pickle (torch .bin)");
  EXPECT_EQ(describe_magic("PK\3\4\0\0"s), "a zip archive");
  EXPECT_EQ(describe_magic("GGUF\3\0\0\0"s), "a GGUF file");
  EXPECT_EQ(describe_magic("\x89HDF\r\n\x1a\n"), "an HDF5 file");
  EXPECT_EQ(describe_magic(std::string(64, '\0')), "all zero bytes");
  EXPECT_EQ(describe_magic("{\n  \"metadata\": {"), "a JSON text");
  EXPECT_EQ(describe_magic("\x40\0\0\0\0\0\0\0{\"a\":"s), "a safetensors file");
  EXPECT_EQ(describe_magic("\x1f\x8b\x08"), "a gzip file");
  EXPECT_EQ(describe_magic("PYTORCH1"), "a preview archive of PyTorch, from before its zip form");
  EXPECT_EQ(describe_magic(""), "");
  EXPECT_EQ(describe_magic("{not json"), "");
  EXPECT_EQ(describe_magic("hello"), "");
}

}  // namespace
}  // namespace shardwright
