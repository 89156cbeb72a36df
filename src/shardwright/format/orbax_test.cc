#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "shardwright/format/draft_suite.h"
#include "shardwright/format/orbax_draft.h"
#include "shardwright/format/orbax_layout.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::TemporaryDirectory;
using testing_support::write_file;

std::string sample(const std::string& name) { return std::string(SHARDWRIGHT_TEST_DATA) + "/orbax/" + name; }

Result<Catalog> open_at(const std::string& path) {
  SHARDWRIGHT_ASSIGN(auto store, open_file_store(path));
  EXPECT_EQ(sniff_format(*store, ""), &kOrbax) << path;
  return kOrbax.open(*store, "", {});
}

std::vector<std::string> names_of(const Catalog& catalog) {
  std::vector<std::string> names;
  for (TensorId id = 0; id < catalog.size(); ++id) {
    auto spec = catalog.spec(id);
    names.push_back(std::string(spec.name) + " " + std::string(dtype_row(spec.dtype).name) + shape_text(spec.shape));
  }
  return names;
}

/// A copy that can be broken.
struct Copy {
  TemporaryDirectory directory;
  explicit Copy(const std::string& name) { fs::copy(sample(name), path(), fs::copy_options::recursive); }
  std::string path() const { return directory.at("c"); }
  std::string at(const std::string& name) const { return path() + "/" + name; }
};

TEST(Orbax, NamesTypesAndShapesOfTheSamples) {
  auto whole = open_at(sample("default_ocdbt_zarr2"));
  ASSERT_TRUE(whole.ok()) << whole.error().text();
  EXPECT_THAT(names_of(*whole), ElementsAre("count I64[]", "lr F64[]", "np F64[5]", "params.dense.bias F32[12]",
                                            "params.dense.kernel F32[8, 12]", "params.layers.0 I32[3, 2]",
                                            "params.layers.1 I8[2]", "step I32[]"));
  Json kept = parse_json(whole->value(kOrbaxValue)->data).value();
  EXPECT_EQ(kept["items"][""]["leaves"].size(), 10u);  // an empty dict and None are no arrays
  auto items = open_at(sample("v1_checkpointables"));
  ASSERT_TRUE(items.ok()) << items.error().text();
  EXPECT_THAT(names_of(*items), ::testing::Contains(::testing::StartsWith("cfg/lr ")));
  EXPECT_THAT(names_of(*items), ::testing::Contains(::testing::StartsWith("params/")));
  auto step = open_at(sample("manager/10"));
  ASSERT_TRUE(step.ok()) << step.error().text();
  EXPECT_EQ(step->side_files().size(), 2u);  // JSON and metrics
  EXPECT_THAT(step->value("metadata")->data, HasSubstr("step10"));
  for (const char* name : {"bfloat16", "indirect", "manager/20/state", "manager_single/ckpt_000005",
                           "multiprocess_2x4/1", "no_ocdbt_zarr2", "no_ocdbt_zarr3", "prng", "prng_handler",
                           "sharded_2x4", "v1_pytree", "v1_training/1", "zarr3_ocdbt", "zarr3_subchunk"}) {
    auto opened = open_at(sample(name));
    ASSERT_TRUE(opened.ok()) << name << ": " << opened.error().text();
    EXPECT_GT(opened->size(), 0u) << name;
  }
}

TEST(Orbax, RandomKeysKeepTheirImplementation) {
  auto keys = open_at(sample("prng"));
  ASSERT_TRUE(keys.ok());
  EXPECT_THAT(names_of(*keys), ::testing::Contains("k U32[2]"));
  EXPECT_THAT(keys->value(kOrbaxValue)->data, HasSubstr(R"("random_keys":{"k":"threefry2x32"})"));
}

TEST(Orbax, UnfinishedSavesAreRefused) {
  Copy copy("default_ocdbt_zarr2");
  fs::rename(copy.path(), copy.path() + ".orbax-checkpoint-tmp");
  auto opened = open_at(copy.path() + ".orbax-checkpoint-tmp");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("never finished"));
  Copy later("default_ocdbt_zarr2");
  auto text = testing_support::read_file(later.at("_CHECKPOINT_METADATA"));
  auto at = text.find("\"commit_timestamp_nsecs\": ") + 26;
  write_file(later.at("_CHECKPOINT_METADATA"), text.substr(0, at) + "null" + text.substr(text.find(',', at)));
  EXPECT_TRUE(open_at(later.path()).ok());  // the commit file says that it is whole
  fs::remove(later.at("commit_success.txt"));
  EXPECT_FALSE(open_at(later.path()).ok());
  // Without the file alone: releases before 0.12.3 had none.
  Copy old("default_ocdbt_zarr2");
  fs::remove(old.at("commit_success.txt"));
  EXPECT_TRUE(open_at(old.path()).ok());
}

TEST(Orbax, ADirectoryOfStepsNamesTheNewest) {
  auto opened = open_at(sample("manager"));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  EXPECT_THAT(opened.error().hint, HasSubstr("/20"));
}

TEST(Orbax, WhatIsMissingIsNamed) {
  Copy tree("sharded_2x4");
  fs::remove(tree.at("_METADATA"));
  auto flat = open_at(tree.path());
  ASSERT_TRUE(flat.ok()) << flat.error().text();
  EXPECT_EQ(flat->size(), open_at(sample("sharded_2x4"))->size());  // names from storage
  Copy manifest("sharded_2x4");
  fs::remove(manifest.at("manifest.ocdbt"));
  EXPECT_EQ(open_at(manifest.path()).error().code, Code::kNotFound);
  Copy data("indirect");
  fs::remove(data.at("ocdbt.process_0/d/54e0e5c3699696b5fd5a3d87553ac517"));
  auto gone = open_at(data.path());
  ASSERT_FALSE(gone.ok());
  EXPECT_THAT(gone.error().path, HasSubstr("54e0e5c3"));
  Copy chunk("no_ocdbt_zarr2");
  fs::remove(chunk.at("params.dense.kernel/1.1"));
  auto hole = open_at(chunk.path());
  ASSERT_FALSE(hole.ok());
  EXPECT_THAT(hole.error().path, HasSubstr("params.dense.kernel/1.1"));
  // An old checkpoint does not store what equals the fill value.
  auto text = testing_support::read_file(chunk.at("_METADATA"));
  auto at = text.find("\"store_array_data_equal_to_fill_value\": true");
  write_file(chunk.at("_METADATA"), text.substr(0, at) + "\"x\": true" + text.substr(at + 44));
  EXPECT_TRUE(open_at(chunk.path()).ok());
}

/// Only plain zarr says that what is not stored is the fill value.
TEST(Orbax, WithoutATreeEveryChunkMustBeThere) {
  Copy flat("no_ocdbt_zarr2");
  fs::remove(flat.at("_METADATA"));
  EXPECT_TRUE(open_at(flat.path()).ok());
  fs::remove(flat.at("params.dense.kernel/0.0"));
  auto hole = open_at(flat.path());
  ASSERT_FALSE(hole.ok());
  EXPECT_THAT(hole.error().path, HasSubstr("params.dense.kernel/0.0"));
  // One array of it, opened by itself: its checkpoint is told by what lies above.
  EXPECT_FALSE(open_checkpoint(flat.at("params.dense.kernel")).ok());
  for (const char* mark : {"_sharding", "array_metadatas", "_CHECKPOINT_METADATA", "commit_success.txt"})
    fs::remove_all(flat.at(mark));
  EXPECT_TRUE(open_checkpoint(flat.at("params.dense.kernel")).ok());  // now it is any zarr array
}

TEST(Orbax, OneProcesssDatabaseNamesTheWhole) {
  Copy step("multiprocess_2x4");
  auto item = step.at("1/default");
  for (const char* part : {"ocdbt.process_0", "ocdbt.process_1"}) {
    auto opened = open_checkpoint(item + "/" + part);
    ASSERT_FALSE(opened.ok()) << part;
    EXPECT_EQ(opened.error().code, Code::kNotFound) << part;
    EXPECT_THAT(opened.error().hint, HasSubstr("the directory above")) << part;
  }
  fs::remove(item + "/manifest.ocdbt");
  EXPECT_THAT(open_at(item).error().hint, HasSubstr("ocdbt merge"));
  for (const char* mark : {"_METADATA", "_sharding", "array_metadatas", "commit_success.txt"})
    fs::remove_all(item + "/" + mark);
  EXPECT_THAT(open_at(item).error().hint, HasSubstr("ocdbt merge"));
}

TEST(Orbax, MarksThatAreNoFilesAreErrors) {
  for (const char* mark : {"_METADATA", "manifest.ocdbt"}) {
    Copy copy("default_ocdbt_zarr2");
    fs::remove(copy.at(mark));
    for (int kind = 0; kind < 3; ++kind) {
      if (kind == 0) fs::create_symlink("nowhere", copy.at(mark));
      if (kind == 1) fs::create_symlink(mark, copy.at(mark));
      if (kind == 2) fs::create_directory(copy.at(mark));
      auto opened = open_at(copy.path());
      ASSERT_FALSE(opened.ok()) << mark << kind;
      EXPECT_EQ(opened.error().path, copy.at(mark)) << opened.error().text();
      fs::remove(copy.at(mark));
    }
  }
  Copy item("manager");
  fs::remove(item.at("20/state/_METADATA"));
  fs::create_symlink("nowhere", item.at("20/state/_METADATA"));
  EXPECT_EQ(open_at(item.at("20")).error().path, item.at("20/state/_METADATA"));
  // The newest step that opens is the advice.
  EXPECT_THAT(open_at(item.path()).error().hint, HasSubstr("is whole is " + item.at("10")));
}

TEST(Orbax, UnfinishedSavesAreKnownByTheirRealNames) {
  Copy copy("default_ocdbt_zarr2");
  auto temporary = copy.path() + ".orbax-checkpoint-tmp";
  fs::rename(copy.path(), temporary);
  fs::create_directory_symlink(temporary, copy.path());
  auto before = fs::current_path();
  fs::current_path(temporary);
  EXPECT_THAT(open_at(".").error().message, HasSubstr("never finished"));
  fs::current_path(before);
  EXPECT_THAT(open_at(copy.path()).error().message, HasSubstr("never finished"));
  EXPECT_THAT(open_checkpoint(copy.path() + "/ocdbt.process_0").error().message, HasSubstr("never finished"));
}

TEST(Orbax, ADirectoryWithoutFilesIsSaidToBeOne) {
  TemporaryDirectory directory;
  auto opened = open_checkpoint(directory.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("no file"));
  EXPECT_THAT(opened.error().expected, HasSubstr("Orbax"));
}

TEST(Orbax, ATreeOfTextNeedsNoDatabase) {
  testing_support::TemporaryDirectory directory;
  write_file(directory.at("_METADATA"),
             R"x({"tree_metadata": {"('config',)": {"key_metadata": [{"key": "config", "key_type": 2}],)x"
             R"( "value_metadata": {"value_type": "string", "skip_deserialize": false}}}, "use_ocdbt": true})");
  write_file(directory.at("_strings.json"), R"({"config": "{}"})");
  auto opened = open_checkpoint(directory.path());
  ASSERT_OK(opened);
  EXPECT_EQ(opened->catalog.size(), 0);
}

TEST(Orbax, CollidingNamesAreRefused) {
  auto leaf = [](const char* keys) {
    return std::string(R"({"key_metadata":)") + keys +
           R"(,"value_metadata":{"value_type":"np.ndarray","skip_deserialize":false}})";
  };
  auto tree =
      parse_orbax_tree(R"({"tree_metadata":{"1":)" + leaf(R"([{"key":"a","key_type":2},{"key":"b","key_type":2}])") +
                       R"(,"2":)" + leaf(R"([{"key":"a.b","key_type":2}])") + "}}");
  ASSERT_FALSE(tree.ok());
  EXPECT_EQ(tree.error().tensor, "a.b");
  for (const char* bad :
       {"[]", "{}", R"({"tree_metadata":{"1":{}}})",
        R"({"tree_metadata":{"1":{"key_metadata":[{"key":"a","key_type":3}],"value_metadata":{"value_type":"x"}}}})"})
    EXPECT_EQ(parse_orbax_tree(bad).error().code, Code::kCorrupt) << bad;
}

TEST(Orbax, PathsAreSpelledAsPythonDoes) {
  EXPECT_EQ(orbax_path_repr({{"a"}}), "('a',)");
  EXPECT_EQ(orbax_path_repr({{"params"}, {"0", OrbaxKey::kSequence}}), "('params', '0')");
  EXPECT_EQ(orbax_path_repr({}), "()");
  EXPECT_EQ(orbax_path_repr({{"it's"}}), R"(("it's",))");
  EXPECT_EQ(orbax_path_repr({{"'\"\\\n\x01"}}), R"(('\'"\\\n\x01',))");
}

TEST(Orbax, TreesOfNames) {
  bool nested = false;
  auto paths = orbax_paths_of_names({"a.b", "a.c.d", "e"}, nested);
  EXPECT_TRUE(nested);
  EXPECT_EQ(paths[1], (OrbaxPath{{"a"}, {"c"}, {"d"}}));
  paths = orbax_paths_of_names({"a.b", "a"}, nested);
  EXPECT_FALSE(nested);
  EXPECT_EQ(paths[0], (OrbaxPath{{"a.b"}}));
  paths = orbax_paths_of_names({"..", "x."}, nested);
  EXPECT_TRUE(nested);
  EXPECT_EQ(paths[0].size(), 3u);
}

TEST(Orbax, OptionsAreChecked) {
  EXPECT_EQ(OrbaxSettings::parse({{"zarr", "3"}, {"compression", "zstd"}})->level, 3);
  EXPECT_EQ(OrbaxSettings::parse({{"compression", "zstd:-7"}})->level, -7);
  EXPECT_EQ(OrbaxSettings::parse({{"api", "v1"}})->item, "state");
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"compression", "gzip"},
                                                                                   {"compression", "zstd:99"},
                                                                                   {"zarr", "4"},
                                                                                   {"api", "v2"},
                                                                                   {"item", "a/b"},
                                                                                   {"item", ".."},
                                                                                   {"item", "_METADATA"},
                                                                                   {"item", "commit_success.txt"},
                                                                                   {"item", "ocdbt.process_0"},
                                                                                   {"item", "a.orbax-checkpoint-tmp"},
                                                                                   {"item", "a\nb"},
                                                                                   {"level", "1"}})
    EXPECT_EQ(OrbaxSettings::parse({{key, value}}).error().code, Code::kInvalidArgument) << key << "=" << value;
}

/// Writes what a draft says, opens it, and compares.
void round_trip(const Catalog& want, const WriteOptions& options, std::vector<std::string> expected) {
  auto draft = draft_orbax(want, options);
  ASSERT_TRUE(draft.ok()) << draft.error().text();
  auto files = testing::materialise(**draft, [&](TensorId id) { return testing::pattern(id, want.spec(id).nbytes()); });
  TemporaryDirectory directory;
  for (const auto& [key, bytes] : files) write_file(directory.at(key), text_of(bytes));
  auto opened = open_at(directory.path());
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  EXPECT_EQ(names_of(*opened), expected);
}

TEST(Orbax, DraftsOpenAgain) {
  CatalogBuilder builder;
  (void)builder.add_tensor("a.b", DType::kF32, std::vector<int64_t>{3, 2});
  (void)builder.add_tensor("a.c", DType::kBF16, std::vector<int64_t>{});
  (void)builder.add_tensor("empty", DType::kF32, std::vector<int64_t>{0, 4});
  auto want = *builder.build(/*partial=*/true);
  std::vector<std::string> expected = {"a.b F32[3, 2]", "a.c BF16[]", "empty F32[0, 4]"};
  round_trip(want, {}, expected);
  WriteOptions three;
  three.settings = {{"zarr", "3"}};
  round_trip(want, three, expected);
  WriteOptions first;
  first.settings = {{"api", "v1"}};
  round_trip(want, first, expected);
  WriteOptions named;
  named.settings = {{"item", "weights"}};
  round_trip(want, named, expected);
}

/// A tie shares chunks, so both names are cut alike; the second would name chunks that nobody wrote.
TEST(Orbax, TiedArraysAreCutAlikeWhateverTheirShardings) {
  CatalogBuilder builder;
  auto embed = *builder.add_tensor("embed", DType::kF32, std::vector<int64_t>{4, 6});
  auto head = *builder.add_tensor("head", DType::kF32, std::vector<int64_t>{4, 6});
  builder.tie(head, embed);
  auto want = *builder.build(/*partial=*/true);
  WriteOptions options;
  options.shardings = {{"{}", {2, 6}}, {"{}", {4, 3}}};
  round_trip(want, options, {"embed F32[4, 6]", "head F32[4, 6]"});
}

/// A database names files below its own directory, so one item cannot share with another.
TEST(Orbax, TiesAcrossItemsAreWrittenTwice) {
  CatalogBuilder builder;
  auto first = *builder.add_tensor("ema/w", DType::kF32, std::vector<int64_t>{4, 6});
  builder.tie(*builder.add_tensor("params/w", DType::kF32, std::vector<int64_t>{4, 6}), first);
  builder.set_value(std::string(kOrbaxValue), {Value::kJson, R"({"items":{"ema":{},"params":{}}})"});
  round_trip(*builder.build(/*partial=*/true), {}, {"ema/w F32[4, 6]", "params/w F32[4, 6]"});
}

TEST(Orbax, ChunksOverTheLimitAreTold) {
  CatalogBuilder builder;
  (void)builder.add_tensor("small", DType::kU8, std::vector<int64_t>{100});
  (void)builder.add_tensor("large", DType::kU8, std::vector<int64_t>{101});
  auto want = *builder.build(/*partial=*/true);
  WriteOptions options;
  options.max_shard_bytes = 100;
  EXPECT_THAT((*draft_orbax(want, options))->warnings(), ElementsAre(HasSubstr("'large' (101 B)")));
  options.strict = true;
  auto refused = draft_orbax(want, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("'large'"));
}

}  // namespace
}  // namespace shardwright
