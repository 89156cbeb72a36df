#include "shardwright/layout/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(std::vector<int64_t> shape, std::vector<std::string> axes, std::vector<std::string> devices = {}) {
  auto mesh = DeviceMesh::create(std::move(shape), std::move(axes), std::move(devices));
  if (mesh.ok()) return "accepted";
  EXPECT_EQ(mesh.error().code, Code::kInvalidArgument);
  return mesh.error().text();
}

TEST(DeviceMesh, PositionsAreRowMajor) {
  auto mesh = *DeviceMesh::create({2, 3}, {"data", "model"}, {"cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:4", "cpu:5"});
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.devices()[5], "cpu:5");
  EXPECT_EQ(mesh.coordinate(5, 0), 1);
  EXPECT_EQ(mesh.coordinate(5, 1), 2);
  EXPECT_EQ(mesh.stride(0), 3);
  EXPECT_EQ(mesh.axis("model"), 1u);
  EXPECT_EQ(mesh.axis("mode"), std::nullopt);
  EXPECT_EQ(mesh.text(), "data=2,model=3");
}

TEST(DeviceMesh, DevicesHaveIds) {
  EXPECT_THAT(*DeviceMesh::create({2}, {"a"})->device_ids(), ElementsAre(0, 1));
  EXPECT_THAT(*DeviceMesh::create({2}, {"a"}, {"gpu:11", "gpu:7"})->device_ids(), ElementsAre(11, 7));
  EXPECT_EQ(DeviceMesh::create({2}, {"a"}, {"gpu:1", "gpu"})->device_ids(), std::nullopt);
}

TEST(DeviceMesh, Parse) {
  EXPECT_EQ(*DeviceMesh::parse("data=2,model=4"), *DeviceMesh::create({2, 4}, {"data", "model"}));
  EXPECT_EQ(*DeviceMesh::parse("x=1"), *DeviceMesh::create({1}, {"x"}));
  for (const char* text : {"", ",", "data", "data=", "=2", "data=2,", "data=2;model=4", "data=-1", "data=2x", "data=0",
                           "data=99999999999999999999", "data=2,data=4", "data=1048576,model=2"})
    EXPECT_FALSE(DeviceMesh::parse(text).ok()) << text;
}

TEST(DeviceMesh, WhatKerasValidatesIsRefused) {
  EXPECT_THAT(refusal({}, {}), HasSubstr("at least one axis"));
  EXPECT_THAT(refusal({2, 2}, {"a"}), HasSubstr("2 sizes, 1 names"));
  EXPECT_THAT(refusal({2, 2}, {"a", "b"}, {"0", "1", "2"}), HasSubstr("3 devices"));
}

TEST(DeviceMesh, WhatKerasMissesIsRefused) {
  EXPECT_THAT(refusal({2, 2}, {"a", "a"}), HasSubstr("axis 'a' twice"));
  EXPECT_THAT(refusal({2}, {"a"}, {"cpu:0", "cpu:0"}), HasSubstr("device 'cpu:0' twice"));
  EXPECT_THAT(refusal({-4, -2}, {"a", "b"}), HasSubstr("axis 'a' of the mesh has size -4"));
  EXPECT_THAT(refusal({0}, {"a"}), HasSubstr("size 0"));
  EXPECT_THAT(refusal({int64_t{1} << 40, int64_t{1} << 40}, {"a", "b"}), HasSubstr("too large"));
  EXPECT_THAT(refusal({2}, {""}), HasSubstr("name"));
  EXPECT_THAT(refusal({2}, {"a\"b"}), HasSubstr("without quotes"));
  EXPECT_THAT(refusal({2}, {"a"}, {"0", "\n"}), HasSubstr("device"));
}

}  // namespace
}  // namespace shardwright
