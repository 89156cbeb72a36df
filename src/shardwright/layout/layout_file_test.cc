#include "shardwright/layout/layout_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardwright {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kMesh = R"("mesh": {"axis_names": ["data", "model"], "shape": [2, 4]})";

Result<LayoutMap> parse(std::string text, std::optional<DeviceMesh> mesh = std::nullopt) {
  return parse_layout_file(Json::parse("{" + text + "}"), std::move(mesh));
}

std::string refusal(const std::string& text) {
  auto map = parse(text);
  if (map.ok()) return "accepted";
  EXPECT_EQ(map.error().code, Code::kInvalidArgument) << text;
  std::string all = map.error().text() + " " + map.error().hint;
  for (const auto& line : map.error().context) all += " " + line;
  return all;
}

TEST(LayoutFile, AllOfIt) {
  auto map = parse(
      R"_("mesh": {"axis_names": ["data", "model"], "shape": [1, 2], "devices": [7, "cpu:1"]}, "match": "fullmatch", "uneven": "chunk",
          "rules": {"embed": [["data", "model"], null], "q.*": ["", "model"], "k": [], "v": "#sdy.sharding<@mesh, [{\"model\"}]>",
                    "o": "{devices=[2]<=[2]}", "u": "(Replicate(), Shard(dim=1))"})_");
  ASSERT_TRUE(map.ok()) << map.error().text();
  EXPECT_EQ(map->mesh().devices()[0], "7");
  EXPECT_EQ(map->match(), LayoutMap::Match::kFullMatch);
  std::vector<std::string> layouts;
  for (const auto& rule : map->rules()) {
    layouts.push_back(rule.pattern + " " + rule.layout.text());
    EXPECT_EQ(rule.layout.uneven, Uneven::kChunk);
  }
  EXPECT_THAT(layouts, ::testing::ElementsAre("embed [data+model, -]", "q.* [-, model]", "k []", "v [model]",
                                              "o [model]", "u [-, model]"));
}

TEST(LayoutFile, TheGivenMeshWins) {
  std::string text = std::string(kMesh) + R"(, "rules": {"a": ["model"]})";
  EXPECT_EQ(parse(text)->mesh().text(), "data=2,model=4");
  EXPECT_EQ(parse(text, *DeviceMesh::parse("model=8"))->mesh().text(), "model=8");
  EXPECT_EQ(parse(text)->match(), LayoutMap::Match::kSearch);
  EXPECT_EQ(parse(text)->rules()[0].layout.uneven, Uneven::kRefuse);
  EXPECT_FALSE(parse(text, *DeviceMesh::parse("x=8")).ok());
}

TEST(LayoutFile, MistakesAreNamed) {
  std::string mesh(kMesh);
  EXPECT_THAT(refusal(R"("rules": {})"), HasSubstr("no mesh"));
  EXPECT_THAT(refusal(mesh + R"(, "rule": {})"), HasSubstr("did you mean 'rules'?"));
  EXPECT_THAT(refusal(mesh + R"(, "match": "prefix")"), HasSubstr("'match' cannot be \"prefix\""));
  EXPECT_THAT(refusal(mesh + R"(, "uneven": true)"), HasSubstr("'uneven'"));
  EXPECT_THAT(refusal(mesh + R"(, "rules": [])"), HasSubstr("no table"));
  EXPECT_THAT(refusal(mesh + R"(, "rules": {"q/kernel": ["modle"]})"), HasSubstr("in the rule 'q/kernel'"));
  EXPECT_THAT(refusal(mesh + R"(, "rules": {"q/kernel": "model"})"), HasSubstr("one entry per dimension"));
  EXPECT_THAT(refusal(mesh + R"(, "rules": {"q/kernel": [3]})"), HasSubstr("in the rule 'q/kernel'"));
  EXPECT_THAT(refusal(R"("mesh": {"axis_names": ["a"], "shape": [2.5]})"), HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"("mesh": {"axis_names": ["a"], "shape": [18446744073709551615]})"), HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"("mesh": {"axis_names": "a", "shape": [2]})"),
              HasSubstr("'axis_names' of the mesh is no list"));
  EXPECT_THAT(refusal(R"("mesh": {"axes": ["a"], "shape": [2]})"), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(R"("mesh": {"axis_names": ["a"], "shape": [2], "devices": [0, 0]})"), HasSubstr("twice"));
}

}  // namespace
}  // namespace shardwright
