#include "shardwright/base/regex.h"

#include <gtest/gtest.h>

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

TEST(Regex, HostilePatternEndsInAnError) {
  auto regex = Regex::compile("(a+)+$");
  auto matched = regex->search(std::string(5000, 'a') + "b");
  EXPECT_FALSE(matched.ok() && *matched);
}

}  // namespace
}  // namespace shardwright
