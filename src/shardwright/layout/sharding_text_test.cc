/// Shardings as text, both ways, against what JAX and PyTorch wrote: tests/data/layout/shardings.json, made by tests/data/make_layout.py.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "shardwright/layout/gspmd.h"
#include "shardwright/layout/orbax_sharding.h"
#include "shardwright/layout/partition_spec.h"
#include "shardwright/layout/shardy.h"
#include "shardwright/layout/torch_placements.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(SHARDWRIGHT_TEST_DATA) + "/layout/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

DeviceMesh mesh_of(const Json& row) {
  std::vector<std::string> devices;
  if (row.contains("devices"))
    for (const Json& id : row["devices"]) devices.push_back(id.dump());
  return *DeviceMesh::create(row["mesh"].get<std::vector<int64_t>>(), row["axes"].get<std::vector<std::string>>(),
                             devices);
}

/// Every device's box by a layout, as the file has it.
Json boxes_of(const DeviceMesh& mesh, const Result<TensorLayout>& layout, const std::vector<int64_t>& shape) {
  if (!layout.ok()) return layout.error().text();
  auto grid = ShardGrid::create(mesh, *layout, shape);
  if (!grid.ok()) return grid.error().text();
  Json boxes = Json::array();
  for (int64_t i = 0; i < mesh.size(); ++i) {
    Box box = grid->box_of(i);
    boxes.push_back({box.start, box.extent});
  }
  return boxes;
}

TEST(ShardingText, WrittenAsJaxAndTorchDo) {
  Json cases = *parse_json(read_file("shardings.json"));
  ASSERT_EQ(cases["even"].size(), 150u);
  for (const Json& row : cases["even"]) {
    auto mesh = mesh_of(row);
    auto layout = *parse_partition_spec(row["spec"]);
    size_t rank = row["shape"].size();
    EXPECT_EQ(partition_spec_json(layout), row["spec"]);
    EXPECT_EQ(gspmd_text(mesh, layout, rank), row["gspmd"]) << row;
    EXPECT_EQ(shardy_text(layout, rank), row["shardy"]);
    EXPECT_EQ(placements_text(mesh, layout), row["torch"]) << row;
  }
}

TEST(ShardingText, ReadAsJaxAndTorchDo) {
  Json cases = *parse_json(read_file("shardings.json"));
  for (const Json& row : cases["even"]) {
    auto mesh = mesh_of(row);
    auto shape = row["shape"].get<std::vector<int64_t>>();
    EXPECT_EQ(boxes_of(mesh, parse_partition_spec(row["spec"]), shape), row["boxes"]) << row;
    EXPECT_EQ(boxes_of(mesh, parse_gspmd(row["gspmd"].get<std::string>(), mesh), shape), row["boxes"]) << row;
    EXPECT_EQ(boxes_of(mesh, parse_shardy(row["shardy"].get<std::string>(), mesh), shape), row["boxes"]) << row;
    EXPECT_EQ(boxes_of(mesh, parse_placements(row["torch"].get<std::string>(), mesh), shape), row["boxes"]) << row;
  }
  ASSERT_EQ(cases["uneven"].size(), 80u);
  for (const Json& row : cases["uneven"]) {
    auto mesh = mesh_of(row);
    auto layout = parse_placements(row["torch"].get<std::string>(), mesh);
    auto shape = row["shape"].get<std::vector<int64_t>>();
    Json ours = boxes_of(mesh, layout, shape);
    ASSERT_TRUE(ours.is_array()) << ours;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i][1], row["boxes"][i][1]) << row;
      // Where an empty shard begins is nobody's concern: torch says it differently.
      bool empty = Box{ours[i][0], ours[i][1]}.empty();
      EXPECT_TRUE(empty || ours[i][0] == row["boxes"][i][0]) << row;
    }
  }
}

TEST(ShardingText, OrbaxFileRoundTripsByteForByte) {
  std::string text = read_file("orbax_sharding");
  auto shardings = parse_orbax_shardings(text);
  ASSERT_TRUE(shardings.ok()) << shardings.error().text();
  ASSERT_GT(shardings->size(), 4u);
  EXPECT_EQ(*orbax_shardings_text(*shardings), text);
  auto named = std::find_if(shardings->begin(), shardings->end(), [](const auto& s) { return s.name == "w_xy"; });
  ASSERT_NE(named, shardings->end());
  EXPECT_EQ(named->mesh->text(), "x=2,y=4");
  EXPECT_EQ(named->layout.text(), "[x, y]");
}

TEST(ShardingText, OrbaxEntries) {
  OrbaxSharding single{"n", std::nullopt, {}, "cpu:0"};
  EXPECT_EQ(*orbax_sharding_text(single), R"({"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"})");
  EXPECT_EQ(*parse_orbax_sharding("n", *orbax_sharding_text(single)), single);
  auto without_devices = parse_orbax_sharding(
      "n", R"({"sharding_type": "NamedSharding", "shape": [2], "axis_names": ["x"], "partition_spec": ["x"]})");
  EXPECT_EQ(without_devices->mesh->devices()[1], "1");
  OrbaxSharding nameless{"n", *DeviceMesh::create({1}, {"x"}, {"first"}), {}, ""};
  EXPECT_EQ(orbax_sharding_text(nameless).error().code, Code::kUnsupported);
}

TEST(ShardingText, OrbaxLiesAreRefused) {
  auto entry = [](std::string shape, std::string axes, std::string spec, std::string more = "") {
    return fmt::format(R"({{"sharding_type": "NamedSharding", "shape": {}, "axis_names": {}, "partition_spec": {}{}}})",
                       shape, axes, spec, more);
  };
  auto code = [](const std::string& text) {
    auto read = parse_orbax_sharding("w", text);
    return read.ok()                                 ? "ok"
           : read.error().code == Code::kCorrupt     ? "corrupt"
           : read.error().code == Code::kUnsupported ? "unsupported"
                                                     : "other";
  };
  std::string devices = R"(, "device_mesh": {"mesh": [{"id": 3}, {"id": 1}]})";
  EXPECT_STREQ(code(entry("[2]", R"(["x"])", R"(["x"])", devices)), "ok");
  EXPECT_STREQ(code(entry("[3]", R"(["x"])", R"(["x"])", devices)), "corrupt");
  EXPECT_STREQ(code(entry("[2]", R"(["x"])", R"(["y"])", devices)), "corrupt");
  EXPECT_STREQ(code(entry("[2]", R"(["x"])", R"(["x", "x"])")), "corrupt");
  EXPECT_STREQ(code(entry("[2]", R"(["x", "y"])", "[]")), "corrupt");
  EXPECT_STREQ(code(entry("[4294967296, 4294967296]", R"(["x", "y"])", "[]")), "corrupt");
  EXPECT_STREQ(code(entry("[-1]", R"(["x"])", "[]")), "corrupt");
  EXPECT_STREQ(code(entry("[2]", R"(["x"])", "[]", R"(, "device_mesh": {"mesh": [{"id": 1}, {"id": 1}]})")), "corrupt");
  EXPECT_STREQ(code(entry("[2]", R"(["x"])", "7")), "corrupt");
  EXPECT_STREQ(code(R"({"sharding_type": "PositionalSharding"})"), "unsupported");
  EXPECT_STREQ(code("[]"), "corrupt");
  for (const char* file : {"[]", R"({"d1": "{}"})", R"({"d194": {}})", R"({"d1=4": "{}"})", R"({"d19=": "{}"})"})
    EXPECT_FALSE(parse_orbax_shardings(file).ok()) << file;
}

TEST(ShardingText, ShardyMeshes) {
  auto mesh = *DeviceMesh::create({2, 2}, {"a", "b"}, {"cpu:3", "cpu:1", "cpu:2", "cpu:0"});
  EXPECT_EQ(shardy_mesh_text(mesh), R"(#sdy.mesh<["a"=2, "b"=2], device_ids=[3, 1, 2, 0]>)");
  EXPECT_EQ(parse_shardy_mesh(shardy_mesh_text(mesh))->devices()[0], "3");
  EXPECT_EQ(shardy_mesh_text(*DeviceMesh::parse("a=2,b=4")), R"(#sdy.mesh<["a"=2, "b"=4]>)");
  for (const char* text :
       {"", "#sdy.mesh<[]>", R"(#sdy.mesh<["a"=2], device_ids=[0]>)", R"(#sdy.mesh<["a"=2)", R"(#sdy.mesh<["a"=2]> x)",
        R"(#sdy.mesh<["a"=2, "a"=2]>)", R"(#sdy.mesh<["a"=0]>)", R"(#sdy.mesh<["a"=99999999]>)"})
    EXPECT_FALSE(parse_shardy_mesh(text).ok()) << text;
}

TEST(ShardingText, ShardyReadsMoreThanItWrites) {
  auto mesh = *DeviceMesh::parse("a=2,b=4");
  auto text = [&](std::string_view sharding) {
    auto layout = parse_shardy(sharding, mesh);
    return layout.ok() ? layout->text() : layout.error().text();
  };
  EXPECT_EQ(text(R"(#sdy.sharding<@mesh, [{"a", ?}, {?}]>)"), "[a, -]");
  EXPECT_EQ(text(R"(#sdy.sharding<mesh<["a"=2, "b"=4]>, [{"a"}, {}]>)"), "[a, -]");
  EXPECT_EQ(text(R"(#sdy.sharding<@other_mesh, [{"b"}], replicated={"a"}>)"), "[b]");
  EXPECT_THAT(text(R"(#sdy.sharding<mesh<["a"=4, "b"=4]>, [{"a"}]>)"), HasSubstr("another mesh"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{"a"}], replicated={"a"}>)"), HasSubstr("twice"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{"a"}, {"a"}]>)"), HasSubstr("twice"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{"c"}]>)"), HasSubstr("axis 'c'"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{"b":(1)2}]>)"), HasSubstr("parts of a mesh axis"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{"a"}p1]>)"), HasSubstr("priorities"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{"a"}], unreduced={"b"}>)"), HasSubstr("partial sum"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{a}]>)"), HasSubstr("cannot read"));
  EXPECT_THAT(text(R"(#sdy.sharding<@mesh, [{"a"}]> )"
                   "x"),
              HasSubstr("cannot read"));
}

TEST(ShardingText, GspmdReadsMoreThanItWrites) {
  auto mesh = *DeviceMesh::parse("a=2,b=4");
  auto text = [&](std::string_view sharding) {
    auto layout = parse_gspmd(sharding, mesh);
    return layout.ok() ? layout->text() : layout.error().text();
  };
  EXPECT_EQ(text("{devices=[2,4]0,1,2,3,4,5,6,7}"), "[a, b]");
  EXPECT_EQ(text("{devices=[4,2]0,4,1,5,2,6,3,7}"), "[b, a]");
  EXPECT_EQ(text("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={replicated}}"), "[-, b]");
  EXPECT_EQ(text("{devices=[1,1,8]<=[8] last_tile_dim_replicate}"), "[-, -]");
  EXPECT_EQ(text("{devices=[4,2]0,2,1,5,4,6,3,7}").substr(0, 42), "no layout over this mesh gives these tiles");
  // Three axes of two are needed here.
  EXPECT_THAT(text("{devices=[4,2]<=[2,2,2]T(0,2,1)}"), HasSubstr("no layout over this mesh"));
  for (const char* kind : {"{manual}", "{unknown}", "{{replicated}, {replicated}}", "{maximal device=3}"})
    EXPECT_EQ(parse_gspmd(kind, mesh).error().code, Code::kUnsupported) << kind;
  EXPECT_TRUE(parse_gspmd("{maximal device=0}", *DeviceMesh::parse("a=1")).ok());
}

// The first two jaxlib takes without a word.
TEST(ShardingText, GspmdLiesAreRefused) {
  auto mesh = *DeviceMesh::parse("a=2,b=4");
  for (const char* text :
       {"{devices=[2,5]<=[8]}", "{devices=[4,4]<=[16]}", "{devices=[2,4]<=[2,4]}", "{devices=[2,4]<=[8]",
        "devices=[2,4]<=[8]", "{devices=[2,4]<=[8]T(0)}", "{devices=[2,4]<=[2,4]T(0,0)}",
        "{devices=[2,4]<=[2,4]T(0,2)}", "{devices=[2,4]0,1,2,3,4,5,6,6}", "{devices=[2,4]0,1,2,3,4,5,6}",
        "{devices=[2,4]0,1,2,3,4,5,6,8}", "{devices=[-2,-4]<=[8]}", "{devices=[]<=[8]}",
        "{devices=[4294967296,4294967296]<=[8]}", "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}",
        "{replicated} x", ""})
    EXPECT_FALSE(parse_gspmd(text, mesh).ok()) << text;
}

TEST(ShardingText, PlacementsInEveryForm) {
  auto mesh = *DeviceMesh::parse("a=2,b=4");
  auto text = [&](std::string_view placements) {
    auto layout = parse_placements(placements, mesh);
    return layout.ok() ? layout->text() : layout.error().text();
  };
  EXPECT_EQ(text("[Shard(0), Replicate()]"), "[a]");
  EXPECT_EQ(text("(S(1), R)"), "[-, a]");
  EXPECT_EQ(text("(_S(0, 4), S(0))"), "[b+a]");
  EXPECT_EQ(text("(_StridedShard(dim=0, split_factor=4), Shard(dim=0))"), "[b+a]");
  EXPECT_THAT(text("(_StridedShard(dim=0, sf=3), Shard(dim=0))"),
              HasSubstr("no order of the mesh axes gives split factor 3"));
  EXPECT_THAT(text("(Shard(0),)"), HasSubstr("1 placements"));
  EXPECT_THAT(text("(Partial(sum), Replicate())"), HasSubstr("partial sum"));
  for (const char* bad : {"", "()", "(Shard(-1), R)", "(Shard(99999), R)", "(Shard(0), R", "(Shard(0) R)",
                          "(Shard(), R)", "(_S(0), R)", "(_S(0, 0), R)", "(Shard(0), R) x"})
    EXPECT_FALSE(parse_placements(bad, mesh).ok()) << bad;
}

TEST(ShardingText, PartitionSpecs) {
  EXPECT_EQ(parse_partition_spec(Json::parse(R"(["", [], null, "a", ["a", "b"]])"))->text(), "[-, -, -, a, a+b]");
  for (const char* bad : {"7", "[7]", "[[7]]", R"([[""]])", R"([["a", ["b"]]])", "{}", R"("a")"})
    EXPECT_FALSE(parse_partition_spec(Json::parse(bad)).ok()) << bad;
}

}  // namespace
}  // namespace shardwright
