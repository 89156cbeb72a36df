#include "shardwright/base/regex.h"

#include <gtest/gtest.h>

#include <random>

namespace shardwright {
namespace {

std::string sub(std::string_view pattern, std::string_view replacement, std::string_view text) {
  auto regex = Regex::compile(pattern);
  if (!regex.ok()) return "compile: " + regex.error().text();
  auto out = regex->substitute(replacement, text);
  return out.ok() ? *out : "error: " + out.error().text();
}

TEST(Regex, SubstitutesAsPythonDoes) {
  // Expected values are what Python 3.11's re.sub prints.
  EXPECT_EQ(sub("x*", "-", "abxd"), "-a-b--d-");
  EXPECT_EQ(sub(R"(layers\.(\d+)\.)", R"(blk.\1.)", "model.layers.12.mlp.layers.3.w"), "model.blk.12.mlp.blk.3.w");
  EXPECT_EQ(sub("(?P<head>[a-z]+)_w", R"(\g<head>.weight)", "proj_w"), "proj.weight");
  EXPECT_EQ(sub("^model\\.", "", "model.model.x"), "model.x");
  EXPECT_EQ(sub("(a)|b", R"([\1])", "ab"), "[a][]");
  EXPECT_EQ(sub("", "-", "é"), "-é-");
  EXPECT_EQ(sub("a*?", "-", "a.0"), "---.-0-");
  EXPECT_EQ(sub("|é", "-", "éa"), "---a-");
  EXPECT_EQ(sub("a", R"(\\)", "xa"), "x\\");
}

TEST(Regex, RefusesWhatPythonReadsDifferently) {
  for (const char* pattern : {"a{,3}", "a\\Z", "[[:alpha:]]", "(?a)x", "(", "a**"})
    EXPECT_FALSE(Regex::compile(pattern).ok()) << pattern;
  EXPECT_NE(sub("a", R"(\2)", "a").find("no group 2"), std::string::npos);
}

TEST(Regex, SearchAndFullmatchDiffer) {
  auto regex = Regex::compile("dense/kernel");
  EXPECT_TRUE(*regex->search("model/dense/kernel_1"));
  EXPECT_FALSE(*regex->fullmatch("model/dense/kernel_1"));
  EXPECT_TRUE(*regex->fullmatch("dense/kernel"));
}

TEST(Regex, KnowsWhatEveryMatchContains) {
  auto literal = [](const char* pattern) { return Regex::compile(pattern)->literal(); };
  EXPECT_EQ(literal(R"(layers\.12\..*(q|k)_proj\.weight$)"), "_proj.weight");
  EXPECT_EQ(literal(R"(.*attn[_/](query|key)s?[0-9]+/kernel)"), "/kernel");
  EXPECT_EQ(literal("abc*de?f{2}ghi+jk"), "ghi");
  EXPECT_EQ(literal(R"(x\d{1,2}yz)"), "yz");
  for (const char* none : {"", "abc|def", "(abc)", "(?i)abc", "(?x)a b c", R"(abc\x41)", "a{x|b", "[abc]", "(?#()abc"})
    EXPECT_EQ(literal(none), "") << none;
}

// Random patterns on random texts.
TEST(Regex, EveryMatchContainsTheLiteral) {
  std::mt19937 random(11);
  const std::vector<std::string> parts = {"a",   "b",   "0",   ".",   "*",   "+", "?", "|", "(", ")",   "(?:",   "(?i)",
                                          "(?=", "(?!", "[",   "]",   "[^",  "^", "$", "{", "}", "{2}", "{0,1}", ",",
                                          "\\",  "\\d", "\\.", "\\b", "\\1", "-", "A", "é", " ", "#"};
  auto draw = [&](size_t most, size_t first_parts) {
    std::string text;
    for (size_t i = random() % (most + 1); i > 0; --i) text += parts[random() % first_parts];
    return text;
  };
  int matched = 0, with_literal = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string pattern = draw(9, parts.size());
    auto regex = Regex::compile(pattern);
    if (!regex.ok()) continue;
    for (int i = 0; i < 12; ++i) {
      std::string text = draw(8, i % 2 == 0 ? 4 : parts.size());
      auto found = regex->search(text);
      if (!found.ok() || !*found) continue;
      ++matched;
      with_literal += regex->literal().empty() ? 0 : 1;
      ASSERT_NE(text.find(regex->literal()), text.npos) << pattern << " on " << text << ": " << regex->literal();
    }
  }
  EXPECT_GT(matched, 10'000);
  EXPECT_GT(with_literal, 1'000);
}

TEST(Regex, HostilePatternEndsInAnError) {
  auto regex = Regex::compile("(a+)+$");
  std::string text(5000, 'a');
  text += 'b';
  auto matched = regex->search(text);
  EXPECT_FALSE(matched.ok() && *matched);
}

}  // namespace
}  // namespace shardwright
