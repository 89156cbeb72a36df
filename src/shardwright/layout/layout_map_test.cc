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
  EXPECT_LT(map.set(std::string(100'000, '('), {}).error().text().size(), 500u);
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

// A rule that is passed over because of what its pattern needs would not have matched.
TEST(LayoutFinder, ManyNamesGiveWhatEveryPatternGives) {
  std::vector<std::string> patterns = {"norm.*", "[_/]scale$", "(?i)BIAS", "k(ernel)?_9|x"};
  for (int i = 0; i < 20; ++i) patterns.push_back(fmt::format(R"(block_{}/.*kernel)", i));
  for (auto match : {LayoutMap::Match::kSearch, LayoutMap::Match::kFullMatch}) {
    auto map = map_of(patterns, match);
    LayoutFinder finder(map);
    for (int i = 0; i < 30; ++i)
      for (const char* leaf : {"kernel", "bias", "norm/kernel", "norm/scale", "k_9"}) {
        std::string name = fmt::format("block_{}/{}", i, leaf);
        std::vector<uint32_t> hits;
        for (uint32_t rule = 0; rule < map.rules().size(); ++rule) {
          const Regex& regex = *map.rules()[rule].regex;
          if (match == LayoutMap::Match::kSearch ? *regex.search(name) : *regex.fullmatch(name)) hits.push_back(rule);
        }
        auto found = finder.find(name);
        ASSERT_EQ(found.ok(), hits.size() < 2) << name;
        if (!found.ok()) continue;
        ASSERT_EQ(found->value_or(999), hits.empty() ? 999 : hits[0]) << name;
      }
  }
}

}  // namespace
}  // namespace shardwright
