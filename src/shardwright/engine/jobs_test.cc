// What users ask for, by path, on small files in a temporary directory.
#include "shardwright/engine/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shardwright/base/json.h"
#include "shardwright/engine/load.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::read_file;
using testing_support::TemporaryDirectory;
using testing_support::tree;
using testing_support::write_file;
using Shape = std::vector<int64_t>;

/// Tensors in memory: "a" F32 [2, 3], "b" U8 [40], "half" BF16 [4], and "tie", another name of "a".
struct Model {
  std::vector<float> a = {1, -2, 0.5f, 3, 0, 7};
  Bytes b = bytes_of(testing_support::pattern(40));
  std::vector<uint16_t> half = {0x3f80, 0x4000, 0xc040, 0};  // 1, 2, -3, 0

  Catalog catalog() const {
    CatalogBuilder builder;
    add(builder, "a", DType::kF32, {2, 3}, a.data());
    add(builder, "b", DType::kU8, {40}, b.data());
    add(builder, "half", DType::kBF16, {4}, half.data());
    builder.tie(*builder.add_tensor("tie", DType::kF32, Shape{2, 3}), 0);
    builder.set_value("metadata", {Value::kJson, R"({"note": "ours"})"});
    return *builder.build();
  }
  static void add(CatalogBuilder& builder, const char* name, DType dtype, const Shape& shape, const void* at) {
    auto id = *builder.add_tensor(name, dtype, shape);
    (void)id;
    auto bytes = *bytes_of_elements(dtype, *element_count(shape));
    EXPECT_OK(builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(at), bytes}, dtype));
  }
};

class Jobs : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return directory_.at(name); }
  Result<CopySummary> save(const std::string& name, const Model& model, CopyRequest request = {}) {
    request.target = at(name);
    return save_tensors(model.catalog(), {}, request, {});
  }
  Result<CopySummary> copy(const std::string& from, const std::string& to, CopyRequest request = {}) {
    request.source = at(from);
    request.target = at(to);
    return copy_checkpoint(request, {});
  }
  std::string bytes(const std::string& name, const std::string& tensor) {
    auto checkpoint = open_checkpoint(at(name));
    EXPECT_OK(checkpoint);
    auto loaded = load_checkpoint(*checkpoint, {tensor}, {});
    EXPECT_OK(loaded);
    return std::string(text_of(loaded->values(0)));
  }
  std::vector<std::string> findings(const std::string& name, bool full) {
    std::vector<std::string> out;
    auto summary = verify_checkpoint({at(name), full}, {}, [&](const Error& error) { out.push_back(error.text()); });
    EXPECT_OK(summary);
    EXPECT_EQ(summary->findings, out.size());
    return out;
  }
  std::vector<std::string> diff(DiffRequest request) {
    request.a = at(request.a);
    request.b = at(request.b);
    auto rows = diff_checkpoints(request, {});
    EXPECT_OK(rows);
    std::vector<std::string> out;
    for (const auto& row : *rows)
      out.push_back(row.name + " " + row.change + (row.detail.empty() ? "" : " " + row.detail));
    return out;
  }

  TemporaryDirectory directory_;
  Model model_;
};

CopyRequest shards_of(uint64_t bytes) {
  CopyRequest request;
  request.max_shard_bytes = bytes;
  return request;
}

// ---- save

TEST_F(Jobs, SaveWritesWhatIsInMemory) {
  auto saved = save("m.safetensors", model_);
  ASSERT_OK(saved);
  EXPECT_EQ(saved->tensors, 4u);
  EXPECT_THAT(saved->objects,
              ElementsAre(std::pair<std::string, uint64_t>("m.safetensors", read_file(at("m.safetensors")).size())));
  EXPECT_EQ(bytes("m.safetensors", "a"), text_of(std::as_bytes(std::span(model_.a))));
  EXPECT_EQ(bytes("m.safetensors", "b"), text_of(model_.b));
  EXPECT_EQ(bytes("m.safetensors", "tie"), bytes("m.safetensors", "a"));
  EXPECT_CODE(save("m.safetensors", model_), Code::kAlreadyExists);
  EXPECT_CODE(save("m.safetensors", model_, shards_of(10)), Code::kInvalidArgument);
  EXPECT_CODE(save("out", model_, shards_of(0)), Code::kInvalidArgument);
  EXPECT_THAT(tree(directory_.path()), ElementsAre("m.safetensors"));
}

TEST_F(Jobs, SaveCallsForWhatIsMadeLate) {
  CatalogBuilder builder;
  for (const char* name : {"first", "second"}) {
    ASSERT_OK(builder.add_tensor(name, DType::kU8, Shape{100}));
    ASSERT_OK(builder.add_flat({Place::kCall, -1, 0, 0, 100}, DType::kU8));
  }
  Catalog tensors = *builder.build();
  std::vector<TensorId> asked;
  Calls calls;
  calls.produce = [&](TensorId id, const Box&, MutableView into) -> Status {
    asked.push_back(id);
    std::ranges::fill(into, static_cast<std::byte>('a' + id));
    return {};
  };
  CopyRequest request;
  request.target = at("m.safetensors");
  ASSERT_OK(save_tensors(tensors, calls, request, {}));
  EXPECT_THAT(asked, ElementsAre(0, 1));
  EXPECT_EQ(bytes("m.safetensors", "second"), std::string(100, 'b'));
  calls.produce = [](TensorId, const Box&, MutableView) -> Status { return fail(Code::kIo, "cannot"); };
  request.overwrite = true;
  EXPECT_CODE(save_tensors(tensors, calls, request, {}), Code::kIo);
  EXPECT_EQ(bytes("m.safetensors", "second"), std::string(100, 'b'));
  EXPECT_THAT(tree(directory_.path()), ElementsAre("m.safetensors"));
}

// ---- copy

TEST_F(Jobs, CopyThereAndBackKeepsEveryHash) {
  ASSERT_OK(save("m.safetensors", model_));
  ASSERT_OK(copy("m.safetensors", "shards", shards_of(50)));
  ASSERT_OK(copy("shards", "x.weights.json", shards_of(50)));
  ASSERT_OK(copy("x.weights.json", "back.safetensors"));
  auto hashes = [&](const std::string& name) {
    std::map<std::string, std::string> out;
    auto rows = hash_checkpoint(at(name), false, {});
    EXPECT_OK(rows);
    for (const auto& row : *rows) out[row.name] = row.hash;
    return out;
  };
  auto before = hashes("m.safetensors");
  EXPECT_EQ(before.size(), 4u);
  for (const char* name : {"shards", "x.weights.json", "back.safetensors"}) EXPECT_EQ(hashes(name), before) << name;
}

TEST_F(Jobs, CopyOfAPlanIsWhatItSays) {
  ASSERT_OK(save("m.safetensors", model_));
  write_file(at("source/model.safetensors"), read_file(at("m.safetensors")));
  write_file(at("source/config.json"), "{}");
  auto request = shards_of(50);
  request.dry_run = true;
  auto plan = copy("source", "out", request);
  ASSERT_OK(plan);
  EXPECT_FALSE(std::filesystem::exists(at("out")));
  auto done = copy("source", "out", shards_of(50));
  ASSERT_OK(done);
  ASSERT_EQ(plan->objects.size(), done->objects.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < plan->objects.size(); ++i) {
    names.push_back(done->objects[i].first);
    EXPECT_EQ(plan->objects[i].first, names.back());
    EXPECT_EQ(read_file(at("out/" + names.back())).size(), done->objects[i].second);
  }
  EXPECT_EQ(names.back(), "model.safetensors.index.json");
  std::ranges::sort(names);
  EXPECT_EQ(tree(at("out")), names);
  EXPECT_THAT(names, ::testing::Contains("config.json"));
}

TEST_F(Jobs, CopyChoosesRenamesAndCasts) {
  ASSERT_OK(save("m.safetensors", model_));
  CopyRequest request;
  request.select = {{"a", "half"}, {"b"}, {{"^a$", "alpha"}}, DType::kF16};
  ASSERT_OK(copy("m.safetensors", "n.safetensors", request));
  auto checkpoint = open_checkpoint(at("n.safetensors"));
  ASSERT_OK(checkpoint);
  EXPECT_EQ(checkpoint->catalog.size(), 2u);
  auto alpha = checkpoint->catalog.find("alpha");
  ASSERT_TRUE(alpha);
  EXPECT_EQ(checkpoint->catalog.spec(*alpha).dtype, DType::kF16);
  EXPECT_EQ(bytes("n.safetensors", "half"), std::string("\x00\x3c\x00\x40\x00\xc2\x00\x00", 8));
}

TEST_F(Jobs, CopyOntoItselfLosesNothingUnasked) {
  ASSERT_OK(save("m", model_, shards_of(50)));
  auto before = bytes("m", "a");
  CopyRequest some;
  some.select.include = {"b"};
  EXPECT_CODE(copy("m", "m", some), Code::kAlreadyExists);
  ASSERT_OK(copy("m", "m"));
  EXPECT_THAT(tree(at("m")), ElementsAre("model.safetensors"));
  EXPECT_EQ(bytes("m", "a"), before);
  EXPECT_CODE(copy("m", "m/inside"), Code::kInvalidArgument);
  EXPECT_CODE(copy("absent", "out"), Code::kNotFound);
  EXPECT_CODE(copy("m", "absent/out"), Code::kNotFound);
}

// ---- verify

TEST_F(Jobs, VerifyFindsDamageAndOnlyThat) {
  CopyRequest with_manifest;
  with_manifest.manifest = true;
  ASSERT_OK(save("m.safetensors", model_, with_manifest));
  EXPECT_THAT(findings("m.safetensors", false), IsEmpty());
  EXPECT_THAT(findings("m.safetensors", true), IsEmpty());
  std::string good = read_file(at("m.safetensors")), bad = good;
  bad[bad.find(text_of(model_.b)) + 3] ^= 1;
  write_file(at("m.safetensors"), bad);
  EXPECT_THAT(findings("m.safetensors", false), IsEmpty());
  EXPECT_THAT(findings("m.safetensors", true), ElementsAre(HasSubstr("40 stored bytes changed"),
                                                           HasSubstr("tensor 'b': values differ from the manifest")));
  write_file(at("m.safetensors"), good.substr(0, good.size() - 1));
  EXPECT_EQ(findings("m.safetensors", false).size(), 1u);
  auto ignore = [](const Error&) {};
  EXPECT_CODE(verify_checkpoint({at("absent")}, {}, ignore), Code::kNotFound);
  write_file(at("m.safetensors"), good);
  EXPECT_CODE(verify_checkpoint({at("m.safetensors"), true, at("none.json")}, {}, ignore), Code::kNotFound);
}

// ---- diff

TEST_F(Jobs, DiffNamesEachChange) {
  ASSERT_OK(save("m.safetensors", model_));
  Model other = model_;
  other.a[1] = -2.5f;
  other.b[7] ^= std::byte{1};
  ASSERT_OK(save("n.safetensors", other));
  EXPECT_THAT(diff({"m.safetensors", "m.safetensors"}), IsEmpty());
  EXPECT_THAT(diff({"m.safetensors", "n.safetensors"}), ElementsAre("a value", "b value", "tie value"));
  EXPECT_THAT(diff({"m.safetensors", "n.safetensors", true}), IsEmpty());
  EXPECT_THAT(diff({"m.safetensors", "n.safetensors", false, 1, 0}), IsEmpty());
  auto rows = diff_checkpoints({at("m.safetensors"), at("n.safetensors")}, {});
  EXPECT_EQ((*rows)[0].max_abs_diff, 0.5);
  CopyRequest less;
  less.select = {{"half", "b"}, {}, {{"^b$", "c"}}, DType::kF32};
  ASSERT_OK(copy("m.safetensors", "less.safetensors", less));
  EXPECT_THAT(diff({"m.safetensors", "less.safetensors"}),
              ElementsAre("a removed", "b removed", "c added", "half dtype BF16 -> F32", "tie removed"));
  EXPECT_THAT(diff({"m.safetensors", "less.safetensors", false, 0, 1e-6}),
              ElementsAre("a removed", "b removed", "c added", "tie removed"));
}

TEST_F(Jobs, DiffSeesBitsWhereNumbersAreEqual) {
  Model other = model_;
  other.a[4] = -0.0f;
  ASSERT_OK(save("m.safetensors", model_));
  ASSERT_OK(save("n.safetensors", other));
  EXPECT_THAT(diff({"m.safetensors", "n.safetensors"}), ElementsAre("a value", "tie value"));
  EXPECT_THAT(diff({"m.safetensors", "n.safetensors", false, 1e-9, 0}), IsEmpty());
}

// ---- statistics

TEST_F(Jobs, StatisticsCountWhatIsNoNumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  model_.a = {4, kNan, -2, kInf, 0, 1};
  ASSERT_OK(save("m.safetensors", model_));
  auto checkpoint = open_checkpoint(at("m.safetensors"));
  ASSERT_OK(checkpoint);
  auto found = tensor_statistics(*checkpoint, *checkpoint->catalog.find("a"), {});
  ASSERT_OK(found);
  EXPECT_EQ(found->elements, 6u);
  EXPECT_EQ(found->min, -2);
  EXPECT_EQ(found->max, 4);
  EXPECT_EQ(found->mean, 0.75);
  EXPECT_EQ(found->nan, 1u);
  EXPECT_EQ(found->infinite, 1u);
  EXPECT_EQ(found->zero, 1u);
}

// ---- reindex

TEST_F(Jobs, ReindexMakesTheIndexAnew) {
  ASSERT_OK(save("m", model_, shards_of(50)));
  std::string index = at("m/model.safetensors.index.json");
  auto before = (*parse_json(read_file(index)))["weight_map"];
  auto broken = *parse_json(read_file(index));
  std::string moved = broken["weight_map"]["a"];
  broken["weight_map"]["a"] = broken["weight_map"]["b"];
  broken["weight_map"]["gone"] = moved;
  broken["weight_map"].erase("half");
  write_file(index, broken.dump());
  auto planned = reindex_checkpoint(at("m"), /*dry_run=*/true, {});
  ASSERT_OK(planned);
  EXPECT_THAT(planned->added, ElementsAre("half"));
  EXPECT_THAT(planned->removed, ElementsAre("gone"));
  EXPECT_THAT(planned->moved, ::testing::Contains("a"));
  EXPECT_EQ(read_file(index), broken.dump());
  ASSERT_OK(reindex_checkpoint(at("m"), /*dry_run=*/false, {}));
  auto after = (*parse_json(read_file(index)))["weight_map"];
  for (const char* name : {"a", "b", "half"}) EXPECT_EQ(after[name], before[name]) << name;
  EXPECT_FALSE(after.contains("gone"));
  EXPECT_CODE(reindex_checkpoint(at("absent"), false, {}), Code::kNotFound);
}

}  // namespace
}  // namespace shardwright
