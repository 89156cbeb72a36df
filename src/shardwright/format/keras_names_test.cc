#include "shardwright/format/keras_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace shardwright {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> paths(std::vector<std::string_view> names) { return keras_paths(names); }

TEST(KerasNames, KerasTensorsAreTheirOwnPath) {
  EXPECT_THAT(
      paths({"layers/dense/vars/0", "vars/12", "optimizer/vars/3", "layers/norm/vars/mean", "layers/odd/vars/a/b"}),
      ElementsAre("layers/dense/vars/0", "vars/12", "optimizer/vars/3", "layers/norm/vars/mean",
                  "layers/odd/vars/a/b"));
  EXPECT_EQ(vars_group_of("layers/odd/vars/a/b"), "layers/odd/vars");
  EXPECT_EQ(vars_group_of("vars/0"), "vars");
  EXPECT_EQ(vars_group_of("a/vars"), "");
}

TEST(KerasNames, OthersBecomeDatasetZeroOfTheirGroup) {
  EXPECT_THAT(paths({"model.0.weight", "a/b", "vars", "a/vars"}),
              ElementsAre("model.0.weight/vars/0", "a/b/vars/0", "vars/vars/0", "a/vars/vars/0"));
}

TEST(KerasNames, WhatHdf5WouldAlterIsEscaped) {
  using namespace std::string_view_literals;
  EXPECT_THAT(paths({"", "/a", "a/", "a//b", "./a", "a/./b", "a\0b"sv, "/"}),
              ElementsAre("%/vars/0", "%/a/vars/0", "a/%/vars/0", "a/%/b/vars/0", "%2E/a/vars/0", "a/%2E/b/vars/0",
                          "a%00b/vars/0", "%/%/vars/0"));
  EXPECT_FALSE(is_keras_path("/layers/dense/vars/0"));
  EXPECT_FALSE(is_keras_path("layers//vars/0"));
  EXPECT_FALSE(is_keras_path("layers/./vars/0"));
  EXPECT_FALSE(is_keras_path("vars"));
}

TEST(KerasNames, CollisionsAreMovedAside) {
  // "a" wants a/vars/0, which is another tensor's own name.
  EXPECT_THAT(paths({"a", "a/vars/0"}), ElementsAre("a%1/vars/0", "a/vars/0"));
  // Below a dataset nothing can be.
  EXPECT_THAT(paths({"a/vars/0", "a/vars/0/b", "a/vars/0/vars/0"}),
              ElementsAre("a/vars/0", "a%2Fvars%2F0%2Fb/vars/0", "a%2Fvars%2F0%2Fvars%2F0/vars/0"));
  // Escaping makes two names one.
  EXPECT_THAT(paths({"a//b", "a/%/b"}), ElementsAre("a/%/b/vars/0", "a%2F%%2Fb/vars/0"));
}

TEST(KerasNames, RandomNamesGetDistinctPathsThatHdf5Keeps) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> parts = {"a", "vars", "0", "1", "", ".", "%", "%2F", "%1", std::string(1, '\0')};
  for (int round = 0; round < 200; ++round) {
    std::set<std::string> names;
    for (int i = 0; i < 60; ++i) {
      std::string name;
      for (auto depth = random() % 6; depth > 0; --depth)
        name += parts[random() % parts.size()] + (depth > 1 ? "/" : "");
      names.insert(name);
    }
    std::vector<std::string_view> views(names.begin(), names.end());
    auto out = keras_paths(views);
    std::set<std::string> datasets(out.begin(), out.end());
    ASSERT_EQ(datasets.size(), names.size());
    for (const auto& path : out) {
      ASSERT_EQ(escape_for_hdf5(path), path);
      ASSERT_FALSE(vars_group_of(path).empty()) << path;
      for (auto group = parent_path(path); !group.empty(); group = parent_path(group))
        ASSERT_FALSE(datasets.contains(std::string(group))) << path;
    }
  }
}

}  // namespace
}  // namespace shardwright
