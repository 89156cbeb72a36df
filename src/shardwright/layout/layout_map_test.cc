#include "shardwright/layout/layout_map.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardwright {
namespace {

using ::testing::HasSubstr;

LayoutMap map_of(std::vector<std::string> patterns, LayoutMap::Match match = LayoutMap::Match::kSearch) {
  LayoutMap map(*DeviceMesh::create({2, 4}, {"data", "model"}), match);
  for (auto& pattern : patterns) EXPECT_TRUE(map.set(pattern, {{{}, {"model"}}}).ok()) << pattern;
  return map;
}

/// The pattern of the rule for a name, "-" for none.
std::string rule_for(const LayoutMap& map, std::string_view name) {
  auto rule = map.find(name);
  if (!rule.ok()) return rule.error().text();
  return *rule ? map.rules()[**rule].pattern : "-";
}

TEST(LayoutMap, SearchesOrMatchesWhole) {
  auto search = map_of({"dense/kernel"});
  EXPECT_EQ(rule_for(search, "model/dense/kernel_2"), "dense/kernel");
  auto full = map_of({"dense/kernel"}, LayoutMap::Match::kFullMatch);
  EXPECT_EQ(rule_for(full, "model/dense/kernel_2"), "-");
  EXPECT_EQ(rule_for(full, "dense/kernel"), "dense/kernel");
}

TEST(LayoutMap, AnExactNameWins) {
  auto map = map_of({".*kernel", "dense/kernel", "dense/.*"});
  EXPECT_EQ(rule_for(map, "dense/kernel"), "dense/kernel");
  EXPECT_EQ(rule_for(map, "other/kernel"), ".*kernel");
}

TEST(LayoutMap, TwoRulesAreAnErrorThatNamesBoth) {
  auto map = map_of({"dense.*", ".*bias", "kernel"});
  EXPECT_EQ(rule_for(map, "dense/bias"), "tensor 'dense/bias': two rules match: 'dense.*' and '.*bias'");
}

TEST(LayoutMap, WhatCannotBeARuleIsRefusedWhenSet) {
  auto map = map_of({"dense"});
  EXPECT_THAT(map.set("dense", {}).error().text(), HasSubstr("'dense' already"));
  EXPECT_THAT(map.set("q/kernel(", {}).error().text(), HasSubstr("q/kernel("));
  auto unknown = map.set("q", {{{"expert"}}});
  EXPECT_THAT(unknown.error().text(), HasSubstr("axis 'expert'"));
  EXPECT_THAT(unknown.error().context.front(), HasSubstr("'q'"));
  EXPECT_THAT(map.set("q", {{{"model"}, {"model"}}}).error().text(), HasSubstr("twice"));
  EXPECT_EQ(map.rules().size(), 1u);
}

TEST(LayoutMap, LayingOutNamesTensorRuleDimensionAxisAndSize) {
  auto map = map_of({"kernel"});
  LayoutFinder finder(map);
  EXPECT_EQ(finder.lay_out("a/kernel", std::vector<int64_t>{6, 8})->grid.box_of(1).text(), "[0:6, 2:4]");
  auto bad = finder.lay_out("b/kernel", std::vector<int64_t>{6, 10});
  EXPECT_THAT(bad.error().text(),
              HasSubstr("tensor 'b/kernel': dimension 1 of size 10 is not divisible by axis 'model' of size 4"));
  EXPECT_THAT(bad.error().context.front(), HasSubstr("by the rule 'kernel' to [-, model]"));
}

// Names that differ in digits share what digit-blind rules say; rules that can tell digits apart are asked each time.
TEST(LayoutFinder, DigitsAreRememberedOnlyWhereTheyCannotMatter) {
  auto map =
      map_of({R"(layers\.\d\.up$)", R"(layers\.1[02]\.down$)", R"(twice\.(?P<n>\d+)\.(?P=n)$)", R"([!-/]x[#-4]$)"});
  LayoutFinder finder(map);
  auto rule = [&](std::string_view name) {
    auto found = finder.find(name);
    return found.ok() && *found ? static_cast<int>(**found) : -1;
  };
  EXPECT_EQ(rule("layers.3.up"), 0);
  EXPECT_EQ(rule("layers.7.up"), 0);
  EXPECT_EQ(rule("layers.37.up"), -1);
  EXPECT_EQ(rule("layers.11.down"), -1);
  EXPECT_EQ(rule("layers.12.down"), 1);
  EXPECT_EQ(rule("twice.1.2"), -1);
  EXPECT_EQ(rule("twice.2.2"), 2);
  EXPECT_EQ(rule("/x9"), -1);
  EXPECT_EQ(rule("/x4"), 3);
}

TEST(LayoutFinder, ManyNamesGiveWhatOneByOneGives) {
  std::vector<std::string> patterns;
  for (int i = 0; i < 20; ++i) patterns.push_back(fmt::format("block_{}/.*kernel", i));
  patterns.push_back("norm.*");
  auto map = map_of(patterns);
  LayoutFinder finder(map);
  for (int i = 0; i < 200; ++i)
    for (const char* leaf : {"kernel", "bias", "norm/kernel", "norm/scale"}) {
      std::string name = fmt::format("block_{}/{}", i, leaf);
      auto one = map.find(name), many = finder.find(name);
      ASSERT_EQ(one.ok(), many.ok()) << name;
      ASSERT_EQ(one.value_or(999), many.value_or(999)) << name;
    }
}

}  // namespace
}  // namespace shardwright
