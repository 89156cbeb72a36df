#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/format/hub_set.h"
#include "shardwright/format/safetensors_for_test.h"

namespace shardwright {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

/// A directory with a sharded checkpoint: a and c in shard 1, b in shard 2.
class HubOpen : public testing::Test {
 protected:
  void SetUp() override {
    write("model-00001-of-00002.safetensors",
          safetensors_file("{" + u8_tensor("a", 2) + "," + u8_tensor("c", 1, 2) + "}", "aac"));
    write("model-00002-of-00002.safetensors", safetensors_file("{" + u8_tensor("b", 3) + "}", "bbb"));
    index(
        R"({"metadata":{"total_size":6},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}})");
  }
  void write(const std::string& name, const std::string& text) { write_file(directory.at(name), text); }
  void index(const std::string& text) { write("model.safetensors.index.json", text); }
  void remove(const std::string& name) { std::filesystem::remove(directory.at(name)); }
  /// A fresh store: sizes are pinned for as long as one lives.
  Result<Catalog> open(std::string at = "") {
    findings.clear();
    store = std::move(*open_file_store(directory.path()));
    return kSafetensors.open(*store, at, {});
  }
  Result<Catalog> verify(std::string at = "") {
    findings.clear();
    store = std::move(*open_file_store(directory.path()));
    OpenOptions options;
    options.findings = &findings;
    return kSafetensors.open(*store, at, options);
  }
  std::vector<std::string> found() const {
    std::vector<std::string> out;
    for (const auto& finding : findings) out.push_back(finding.text());
    return out;
  }
  void expect_error(const Result<Catalog>& catalog, Code code, const std::string& phrase,
                    const std::string& tensor = "") {
    ASSERT_FALSE(catalog.ok());
    EXPECT_EQ(catalog.error().code, code) << catalog.error().text();
    EXPECT_THAT(catalog.error().text(), HasSubstr(phrase));
    EXPECT_EQ(catalog.error().tensor, tensor) << catalog.error().text();
    EXPECT_THAT(catalog.error().path, HasSubstr(directory.path()));
  }

  TemporaryDirectory directory;
  std::unique_ptr<Store> store;
  std::vector<Error> findings;
};

const std::vector<std::string> kAll = {"a U8 [2] model-00001-of-00002.safetensors@113+2",
                                       "c U8 [1] model-00001-of-00002.safetensors@115+1",
                                       "b U8 [3] model-00002-of-00002.safetensors@61+3"};

TEST_F(HubOpen, SortedShardsInByteOrder) {
  auto catalog = open();
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  EXPECT_EQ(lines_of(*catalog), kAll);
  EXPECT_EQ(catalog->total_bytes(), 6u);
  EXPECT_THAT(catalog->members(), ElementsAre("model.safetensors.index.json", "model-00001-of-00002.safetensors",
                                              "model-00002-of-00002.safetensors"));
  EXPECT_EQ(catalog->entry_count(), 1u);
  auto named = verify("model.safetensors.index.json");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(lines_of(*named), kAll);
  EXPECT_THAT(found(), ElementsAre());
}

TEST_F(HubOpen, MissingShardsAreNamedAllAtOnce) {
  remove("model-00001-of-00002.safetensors");
  remove("model-00002-of-00002.safetensors");
  expect_error(open(), Code::kNotFound,
               "2 of 2 shards are missing: model-00001-of-00002.safetensors, model-00002-of-00002.safetensors");
}

TEST_F(HubOpen, VerifyGoesOnWithoutTheMissingShard) {
  remove("model-00002-of-00002.safetensors");
  auto catalog = verify();
  ASSERT_TRUE(catalog.ok());
  EXPECT_EQ(catalog->size(), 2u);
  EXPECT_THAT(found(), ElementsAre(HasSubstr("1 of 2 shards are missing")));
}

TEST_F(HubOpen, TensorNotInItsShard) {
  index(
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors","d":"model-00002-of-00002.safetensors"}})");
  auto catalog = open();
  expect_error(catalog, Code::kCorrupt, "the index lists a tensor that its shard lacks", "d");
  EXPECT_THAT(catalog.error().path, HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_THAT(catalog.error().hint, HasSubstr("reindex"));
}

TEST_F(HubOpen, TensorInAnotherShard) {
  index(
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})");
  auto catalog = open();
  expect_error(catalog, Code::kCorrupt, "the index lists a tensor that its shard lacks", "c");
  EXPECT_EQ(catalog.error().found, "in model-00001-of-00002.safetensors");
  EXPECT_THAT(catalog.error().hint, HasSubstr("it is in model-00001-of-00002.safetensors"));
}

TEST_F(HubOpen, TensorNotInTheIndex) {
  index(R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  expect_error(open(), Code::kCorrupt, "a shard holds a tensor that the index does not list", "c");
}

TEST_F(HubOpen, VerifyFindsAllOfThem) {
  index(
      R"({"metadata":{"total_size":7},"weight_map":{"x":"model-00001-of-00002.safetensors","y":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})");
  write("model-00003-of-00003.safetensors", "stale");
  auto catalog = verify();
  ASSERT_TRUE(catalog.ok());
  EXPECT_EQ(lines_of(*catalog), kAll);
  EXPECT_THAT(found(), testing::UnorderedElementsAre(
                           HasSubstr("tensor 'x': the index lists"), HasSubstr("tensor 'y': the index lists"),
                           HasSubstr("tensor 'c': the index lists"), HasSubstr("tensor 'a': a shard holds"),
                           HasSubstr("total_size in the index is wrong; no reader depends on it (found 7, expected 6)"),
                           HasSubstr("model-00003-of-00003.safetensors: a shard that the index does not name")));
}

TEST_F(HubOpen, SameNameInTwoShards) {
  write("model-00002-of-00002.safetensors", safetensors_file("{" + u8_tensor("a", 3) + "}", "bbb"));
  index(R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  auto catalog = open();
  expect_error(catalog, Code::kCorrupt, "this tensor is also in ", "a");
  EXPECT_THAT(catalog.error().text(), HasSubstr("model-00001-of-00002.safetensors"));
  EXPECT_THAT(catalog.error().path, HasSubstr("model-00002-of-00002.safetensors"));
}

TEST_F(HubOpen, NameTwiceInTheIndex) {
  index(
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors"}})");
  expect_error(open(), Code::kCorrupt, "the index lists a tensor twice", "a");
}

TEST_F(HubOpen, DamagedShardsAreToldByTheirPath) {
  write("model-00001-of-00002.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  auto catalog = open();
  expect_error(catalog, Code::kCorrupt, "a Git LFS pointer");
  EXPECT_THAT(catalog.error().path, HasSubstr("model-00001-of-00002.safetensors"));
  ASSERT_TRUE(verify().ok());
  EXPECT_THAT(found(), ElementsAre(HasSubstr("a Git LFS pointer")));  // and not one more for each of its tensors

  SetUp();
  write("model-00002-of-00002.safetensors", safetensors_file("{" + u8_tensor("b", 3) + "}", "bb"));
  expect_error(open(), Code::kCorrupt, "the file is cut off (found 63 bytes, expected 64 bytes by its header)");
  ASSERT_TRUE(verify().ok());
  EXPECT_THAT(found(), ElementsAre(HasSubstr("the file is cut off")));
}

TEST_F(HubOpen, BrokenIndexes) {
  index("<!DOCTYPE html>");
  expect_error(open(), Code::kCorrupt, "not an index but an HTML page");
  index("{\"weight_map\":");
  expect_error(open(), Code::kCorrupt, "index is not JSON");
  index(R"({"weight_map":{"a":"../x.safetensors"}})");
  expect_error(open(), Code::kCorrupt, "outside its directory", "a");
  index(R"({"weight_map":{}})");
  auto empty = verify();
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->size(), 0u);
  EXPECT_EQ(findings.size(), 2u);  // both shards are surplus
}

TEST_F(HubOpen, MetadataOfIndexThenShards) {
  write("model-00001-of-00002.safetensors", safetensors_file(R"({"__metadata__":{"format":"pt","k":"shard 1"},)" +
                                                                 u8_tensor("a", 2) + "," + u8_tensor("c", 1, 2) + "}",
                                                             "aac"));
  write("model-00002-of-00002.safetensors",
        safetensors_file(R"({"__metadata__":{"format":"mlx","l":"shard 2"},)" + u8_tensor("b", 3) + "}", "bbb"));
  index(
      R"({"metadata":{"total_size":6.0,"total_parameters":6,"k":"index"},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}})");
  auto catalog = verify();
  ASSERT_TRUE(catalog.ok());
  EXPECT_EQ(value_of(*catalog), R"({"total_parameters":6,"k":"index","format":"pt","l":"shard 2"})");
  EXPECT_THAT(found(), ElementsAre());  // 6.0 is right too
}

TEST_F(HubOpen, AliasNotesBecomeTies) {
  index(
      R"({"metadata":{"total_size":6,"tied":"b","b":"a","other":"nothing","note":"x"},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}})");
  auto catalog = open();
  ASSERT_TRUE(catalog.ok());
  auto lines = lines_of(*catalog);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3], "tied U8 [3] = b");
  EXPECT_EQ(catalog->tie_count(), 1u);
  EXPECT_EQ(value_of(*catalog),
            R"({"b":"a","other":"nothing","note":"x"})");  // b is a tensor itself: its note is just metadata
}

TEST_F(HubOpen, SingleFileBesideAnIndex) {
  write("model.safetensors", safetensors_file("{" + u8_tensor("whole", 1) + "}", "w"));
  auto catalog = verify();
  ASSERT_TRUE(catalog.ok());
  EXPECT_EQ(lines_of(*catalog), kAll);
  EXPECT_THAT(found(), ElementsAre(HasSubstr("side by side")));
  EXPECT_THAT(catalog->members(), ElementsAre("model.safetensors", "model.safetensors.index.json",
                                              "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_EQ(catalog->entry_count(), 2u);
  EXPECT_EQ(kSafetensors.members(*store, ""),
            std::vector<std::string>(catalog->members().begin(), catalog->members().end()));

  remove("model-00002-of-00002.safetensors");
  auto single = verify();
  ASSERT_TRUE(single.ok());
  EXPECT_THAT(lines_of(*single), ElementsAre("whole U8 [1] model.safetensors@65+1"));
  EXPECT_THAT(found(), ElementsAre(HasSubstr("names shards that are missing; the single file beside it is read")));
  // Named, the index is what is meant.
  expect_error(open("model.safetensors.index.json"), Code::kNotFound, "1 of 2 shards are missing");
}

TEST_F(HubOpen, OtherNames) {
  remove("model.safetensors.index.json");
  expect_error(open(), Code::kNotFound,
               "several safetensors files and no index (found model-00001-of-00002.safetensors, "
               "model-00002-of-00002.safetensors");
  EXPECT_EQ(kSafetensors.sniff(*store, ""), Confidence::kName);
  write(
      "model.fp16.safetensors.index.json",
      R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"})");
  auto variant = open();
  ASSERT_TRUE(variant.ok()) << variant.error().text();
  EXPECT_EQ(lines_of(*variant), kAll);
  write("x.safetensors.index.json", "{}");
  expect_error(open(), Code::kNotFound, "several indexes");
  for (const char* name :
       {"x.safetensors.index.json", "model.fp16.safetensors.index.json", "model-00001-of-00002.safetensors"})
    remove(name);
  auto one = open();
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(lines_of(*one), ElementsAre(kAll[2]));
  EXPECT_THAT(one->members(), ElementsAre("model-00002-of-00002.safetensors"));
  remove("model-00002-of-00002.safetensors");
  expect_error(open(), Code::kNotFound, "no safetensors checkpoint here");
  EXPECT_EQ(kSafetensors.sniff(*store, ""), Confidence::kNo);
}

TEST_F(HubOpen, ShardsInSubdirectories) {
  write("sub/x.safetensors", safetensors_file("{" + u8_tensor("s", 1) + "}", "s"));
  write("sub/deep.safetensors.index.json", R"({"weight_map":{"s":"x.safetensors"}})");
  index(R"({"weight_map":{"s":"sub/x.safetensors"}})");
  auto catalog = open();
  ASSERT_TRUE(catalog.ok());
  EXPECT_THAT(lines_of(*catalog), ElementsAre("s U8 [1] sub/x.safetensors@61+1"));
  auto below = open("sub/deep.safetensors.index.json");
  ASSERT_TRUE(below.ok());
  EXPECT_EQ(lines_of(*below), lines_of(*catalog));
}

TEST_F(HubOpen, Sniff) {
  write("torch.bin", safetensors_file("{" + u8_tensor("s", 1) + "}", "s"));
  write("pointer.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  write("text.txt", "hello, this is a text");
  write("x.index.json", "{}");
  ASSERT_TRUE(open().ok());
  auto sniff = [&](const char* at) { return kSafetensors.sniff(*store, at); };
  EXPECT_EQ(sniff(""), Confidence::kCertain);
  EXPECT_EQ(sniff("model-00001-of-00002.safetensors"), Confidence::kCertain);
  EXPECT_EQ(sniff("model.safetensors.index.json"), Confidence::kCertain);
  EXPECT_EQ(sniff("torch.bin"), Confidence::kMagic);
  EXPECT_EQ(sniff("pointer.safetensors"), Confidence::kName);
  EXPECT_EQ(sniff("text.txt"), Confidence::kNo);
  EXPECT_EQ(sniff("x.index.json"), Confidence::kNo);
  EXPECT_EQ(sniff("absent"), Confidence::kNo);
}

TEST_F(HubOpen, OnlyHeadersAreRead) {
  std::string data(8 * MiB, 'x');
  write("model-00002-of-00002.safetensors", safetensors_file("{" + u8_tensor("b", data.size()) + "}", data));
  ASSERT_TRUE(open().ok());
  EXPECT_LT(store->bytes_read(), 200 * KiB);
}

TEST_F(HubOpen, Reindex) {
  auto rebuilt = [&](std::string at = "") -> std::string {
    store = std::move(*open_file_store(directory.path()));
    auto index = kSafetensors.rebuild_index(*store, at, {});
    return index.ok() ? index->first + "\n" + std::string(text_of(index->second)) : index.error().text();
  };
  std::string right = R"(model.safetensors.index.json
{
  "metadata": {
    "total_size": 6,
    "kept": 1
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "c": "model-00001-of-00002.safetensors",
    "b": "model-00002-of-00002.safetensors"
  }
})";
  index(R"({"metadata":{"kept":1,"total_size":9},"weight_map":{"b":"model-00007-of-00007.safetensors"}})");
  EXPECT_EQ(rebuilt(), right);
  EXPECT_EQ(rebuilt("model.safetensors.index.json"), right);
  remove("model.safetensors.index.json");
  right.erase(right.find(",\n    \"kept\": 1"), 15);
  EXPECT_EQ(rebuilt(), right);
  index("not JSON");
  EXPECT_EQ(rebuilt(), right);
  remove("model-00001-of-00002.safetensors");
  EXPECT_THAT(rebuilt(), HasSubstr("shards are missing: model-00001-of-00002.safetensors"));
  write("model-00001-of-00002.safetensors", safetensors_file("{" + u8_tensor("b", 2) + "}", "aa"));
  EXPECT_THAT(rebuilt(), HasSubstr("tensor 'b': a tensor is given twice"));
  write("model-00001-of-00003.safetensors", safetensors_file("{}"));
  EXPECT_THAT(rebuilt(), HasSubstr("more than one save"));
  EXPECT_THAT(rebuilt("other.safetensors.index.json"), HasSubstr("no shards here"));
  EXPECT_THAT(rebuilt("model-00001-of-00003.safetensors"), HasSubstr("not the name of an index"));
}

TEST_F(HubOpen, SideFiles) {
  for (const char* name :
       {"config.json", "tokenizer.model", "LICENSE", "1_Pooling/config.json", "pytorch_model.bin", ".gitattributes",
        "onnx/model.onnx", ".cache/x.json", "shardwright.manifest.json", "picture.xyz"})
    write(name, "x");
  auto catalog = open();
  ASSERT_TRUE(catalog.ok());
  std::vector<std::string> names;
  for (const auto& side : catalog->side_files()) names.push_back(side.name);
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("config.json", "tokenizer.model", "LICENSE", "1_Pooling/config.json"));
  EXPECT_TRUE(open("model.safetensors.index.json")->side_files().empty());
}

}  // namespace
}  // namespace shardwright
