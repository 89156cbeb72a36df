#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "shardwright/base/json.h"
#include "shardwright/format/safetensors_draft.h"
#include "shardwright/format/safetensors_for_test.h"

namespace shardwright {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

struct Tensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
};

/// Tensors in order, then ties as alias -> kept.
Catalog wanted(const std::vector<Tensor>& tensors, const std::vector<std::pair<std::string, std::string>>& ties = {},
               const std::string& metadata = "") {
  CatalogBuilder builder;
  std::map<std::string, std::pair<TensorId, Tensor>> ids;
  for (const auto& t : tensors) ids.emplace(t.name, std::pair(*builder.add_tensor(t.name, t.dtype, t.shape), t));
  for (const auto& [alias, kept] : ties) {
    const auto& [id, t] = ids.at(kept);
    builder.tie(*builder.add_tensor(alias, t.dtype, t.shape), id);
  }
  if (!metadata.empty()) builder.set_value("metadata", {Value::kJson, metadata});
  return *builder.build(/*specs_only=*/true);
}

/// What the engine makes of a draft, with every payload byte 'x'.
std::map<std::string, std::string> written(Draft& draft) {
  std::map<std::string, std::string> files;
  for (ObjectId object = 0; object < draft.objects().size(); ++object) {
    const auto& info = draft.objects()[object];
    std::string content(info.size, '\0');
    auto segments = draft.segments(object);
    uint64_t end = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      const auto& segment = segments[i];
      EXPECT_EQ(segment.offset, end) << "no gaps in safetensors";
      end = segment.offset + segment.length;
      if (segment.type == Segment::kPayload) {
        EXPECT_EQ(segment.length, draft.target().spec(segment.tensor).nbytes());
        std::fill_n(content.begin() + static_cast<ptrdiff_t>(segment.offset), segment.length, 'x');
        continue;
      }
      Bytes late = segment.type == Segment::kLate ? *draft.late(object, i, {})
                                                  : Bytes(segment.literal.begin(), segment.literal.end());
      EXPECT_EQ(late.size(), segment.length);
      std::copy_n(reinterpret_cast<const char*>(late.data()), late.size(),
                  content.begin() + static_cast<ptrdiff_t>(segment.offset));
    }
    EXPECT_EQ(end, info.size);
    files[info.key] = content;
  }
  auto sealed = draft.seal({});
  EXPECT_TRUE(sealed.ok());
  for (const auto& [key, bytes] : *sealed) files[key] = text_of(bytes);
  return files;
}

std::map<std::string, std::string> written(const Catalog& want, const WriteOptions& options = {}) {
  auto draft = kSafetensors.draft(want, options);
  EXPECT_TRUE(draft.ok()) << draft.error().text();
  return draft.ok() ? written(**draft) : std::map<std::string, std::string>();
}

std::vector<std::string> names(const std::map<std::string, std::string>& files) {
  std::vector<std::string> out;
  for (const auto& [name, content] : files) out.push_back(name);
  return out;
}

std::string header_of(const std::string& file) { return file.substr(8, load_le<uint64_t>(view_of(file))); }

TEST(SafetensorsDraft, WritesWhatTheHubWrites) {
  std::ifstream file(SHARDWRIGHT_TEST_DATA "/hub_save.json");
  std::stringstream text;
  text << file.rdbuf();
  auto cases = parse_json(text.str());
  ASSERT_TRUE(cases.ok()) << cases.error().text();
  ASSERT_GE(cases->size(), 30u);
  for (const auto& one : *cases) {
    std::vector<Tensor> tensors;
    for (const auto& t : one["tensors"])
      tensors.push_back(
          {t[0].get<std::string>(), *dtype_from_name(t[1].get<std::string>()), t[2].get<std::vector<int64_t>>()});
    // The hub keeps the first name of a tie in alphabetical order; which that is, is the caller's to say.
    std::map<std::string, std::vector<std::string>> groups;
    for (const auto& tie : one["ties"]) groups[tie[1].get<std::string>()].push_back(tie[0].get<std::string>());
    std::vector<std::pair<std::string, std::string>> ties;
    for (const auto& [kept, aliases] : groups)
      for (const auto& alias : aliases) {
        ASSERT_LT(kept, alias);
        ties.emplace_back(alias, kept);
      }
    WriteOptions options;
    options.max_shard_bytes = one["limit"].get<uint64_t>();
    auto files = written(wanted(tensors, ties, one["metadata"].empty() ? "" : one["metadata"].dump()), options);
    ASSERT_EQ(files.size(), one["files"].size()) << one;
    for (const auto& [name, expected] : one["files"].items()) {
      ASSERT_TRUE(files.contains(name)) << name;
      if (expected.contains("text")) {
        // Notes of several ties come in the hub's dict order; ours are sorted. Compare those as data, the rest as text.
        if (ties.size() > 1)
          EXPECT_EQ(nlohmann::json::parse(files[name]), nlohmann::json::parse(expected["text"].get<std::string>()));
        else
          EXPECT_EQ(files[name], expected["text"].get<std::string>());
      } else {
        EXPECT_EQ(header_of(files[name]), expected["header"].get<std::string>());
        EXPECT_EQ(files[name].size(), expected["size"].get<uint64_t>());
      }
    }
  }
}

const std::vector<Tensor> kThree = {{"a", DType::kU8, {4}}, {"b", DType::kF32, {2}}, {"c", DType::kU8, {3}}};

TEST(SafetensorsDraft, NamesOfFiles) {
  auto want = wanted(kThree);
  auto with = [&](std::string name, uint64_t limit) {
    return names(written(want, {.name = std::move(name), .max_shard_bytes = limit, .base_key = {}}));
  };
  EXPECT_THAT(with("", kUnknown), ElementsAre("model.safetensors"));
  EXPECT_THAT(with("", 15), ElementsAre("model.safetensors"));
  EXPECT_THAT(with("", 12), ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                        "model.safetensors.index.json"));
  EXPECT_THAT(with("x.safetensors", kUnknown), ElementsAre("x.safetensors"));
  EXPECT_THAT(with("x.safetensors.index.json", 12),
              ElementsAre("x-00001-of-00002.safetensors", "x-00002-of-00002.safetensors", "x.safetensors.index.json"));
  EXPECT_THAT(with("x.safetensors.index.json", kUnknown),
              ElementsAre("x-00001-of-00001.safetensors", "x.safetensors.index.json"));
}

TEST(SafetensorsDraft, IndexIsSealedLast) {
  auto draft = kSafetensors.draft(wanted(kThree), {.name = "", .max_shard_bytes = 12, .base_key = {}});
  ASSERT_TRUE(draft.ok());
  EXPECT_EQ((*draft)->objects().size(), 2u);
  auto sealed = (*draft)->seal({});
  ASSERT_TRUE(sealed.ok());
  ASSERT_EQ(sealed->size(), 1u);
  EXPECT_EQ((*sealed)[0].first, "model.safetensors.index.json");
}

TEST(SafetensorsDraft, MetadataOfOneFile) {
  auto files = written(wanted({{"a", DType::kU8, {1}}}, {{"z", "a"}, {"b", "a"}},
                              R"({"total_parameters":5,"z note":{"x":[1]},"author":"é"})"));
  EXPECT_THAT(
      header_of(files["model.safetensors"]),
      testing::StartsWith(
          R"({"__metadata__":{"author":"é","b":"a","format":"pt","total_parameters":"5","z":"a","z note":"{\"x\":[1]}"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})"));
}

TEST(SafetensorsDraft, MetadataOfShardsGoesToTheIndex) {
  WriteOptions options{.name = "", .max_shard_bytes = 12, .base_key = {}};
  auto files =
      written(wanted(kThree, {{"z", "a"}}, R"({"total_size":1,"format":"mlx","total_parameters":5,"k":"v"})"), options);
  for (const char* shard : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
    EXPECT_THAT(header_of(files[shard]), testing::StartsWith(R"({"__metadata__":{"format":"mlx"},)"));
  EXPECT_THAT(files["model.safetensors.index.json"], testing::StartsWith(R"({
  "metadata": {
    "total_size": 15,
    "total_parameters": 5,
    "k": "v",
    "z": "a"
  },
  "weight_map": {
    "a": )"));
}

TEST(SafetensorsDraft, NotesNeverOverrideMetadata) {
  auto draft = kSafetensors.draft(
      wanted(kThree, {{"z", "a"}, {"format", "b"}, {"same", "a"}}, R"({"z":"mine","same":"a"})"), {});
  ASSERT_TRUE(draft.ok());
  EXPECT_THAT((*draft)->warnings(),
              testing::UnorderedElementsAre(HasSubstr("'z' is tied to 'a' cannot be noted"),
                                            HasSubstr("'format' is tied to 'b' cannot be noted")));
  EXPECT_THAT(header_of(written(**draft)["model.safetensors"]),
              testing::StartsWith(R"({"__metadata__":{"format":"pt","same":"a","z":"mine"},)"));
}

TEST(SafetensorsDraft, ValuesWithoutAPlaceAreTold) {
  CatalogBuilder builder;
  builder.set_value("keras.names", {Value::kJson, "{}"});
  auto draft = kSafetensors.draft(*builder.build(true), {});
  ASSERT_TRUE(draft.ok());
  EXPECT_THAT((*draft)->warnings(), ElementsAre(HasSubstr("'keras.names'")));
}

TEST(SafetensorsDraft, NoTensors) {
  auto files = written(wanted({}));
  EXPECT_EQ(header_of(files["model.safetensors"]), R"({"__metadata__":{"format":"pt"}})");
}

TEST(SafetensorsDraft, TensorsOverTheLimit) {
  WriteOptions options{.name = "", .max_shard_bytes = 3, .base_key = {}};
  auto want = wanted(kThree);
  auto draft = kSafetensors.draft(want, options);
  ASSERT_TRUE(draft.ok());
  EXPECT_EQ((*draft)->objects().size(), 3u);
  EXPECT_THAT((*draft)->warnings(),
              ElementsAre(HasSubstr("'a' (4 B) is larger than a shard may be (3 B)"), HasSubstr("'b'")));
  options.strict = true;
  draft = kSafetensors.draft(want, options);
  ASSERT_FALSE(draft.ok());
  EXPECT_EQ(draft.error().code, Code::kInvalidArgument);
  EXPECT_THAT(draft.error().message, HasSubstr("'a' (4 B), 'b' (8 B)"));
}

TEST(SafetensorsDraft, WhatTheFormatCannotHold) {
  auto refused = [](const Catalog& want, WriteOptions options, Code code, const std::string& phrase) {
    auto draft = kSafetensors.draft(want, options);
    ASSERT_FALSE(draft.ok());
    EXPECT_EQ(draft.error().code, code);
    EXPECT_THAT(draft.error().text(), HasSubstr(phrase));
  };
  refused(wanted({{"__metadata__", DType::kU8, {1}}}), {}, Code::kInvalidArgument, "tensor '__metadata__'");
  refused(wanted({{"a", DType::kU8, {1}}}, {{"__metadata__", "a"}}), {}, Code::kInvalidArgument,
          "tensor '__metadata__'");
  refused(wanted({{"\xff", DType::kU8, {1}}}), {}, Code::kUnsupported, "UTF-8");
  refused(wanted(kThree), {.name = "x.index.json", .base_key = {}}, Code::kInvalidArgument, "not a name for an index");
  refused(wanted(kThree), {.name = "x.safetensors", .max_shard_bytes = 14, .base_key = {}}, Code::kInvalidArgument,
          "is one file, and larger than the limit");
}

TEST(SafetensorsDraft, HeaderLimit) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back({"name " + std::to_string(i) + "\n", DType::kU8, {1}});
  auto want = wanted(tensors);
  SafetensorsLimits limits{.header_bytes = 5000};
  auto single = draft_safetensors_within(limits, want, {.name = "x.safetensors", .base_key = {}});
  ASSERT_FALSE(single.ok());
  EXPECT_EQ(single.error().code, Code::kInvalidArgument);
  EXPECT_THAT(single.error().text(), HasSubstr("no reader takes it"));
  auto sharded = draft_safetensors_within(limits, want, {});
  ASSERT_TRUE(sharded.ok());
  EXPECT_GT((*sharded)->objects().size(), 2u);
  EXPECT_THAT((*sharded)->warnings(), ElementsAre(HasSubstr("more shards than by size alone")));
  for (const auto& [name, content] : written(**sharded))
    if (name.ends_with(".safetensors")) {
      EXPECT_LE(header_of(content).size(), 5000u);
    }
}

TEST(SafetensorsDraft, ManyHeadersAreMadeWhenTheyAreWritten) {
  auto want = wanted(kThree);
  WriteOptions options{.name = "", .max_shard_bytes = 12, .base_key = {}};
  auto late = draft_safetensors_within({.literal_bytes = 200}, want, options);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ((*late)->segments(0)[0].type, Segment::kLate);
  EXPECT_EQ((*late)->segments(1)[0].type, Segment::kLate);
  EXPECT_EQ(written(**late), written(want, options));
}

TEST(SafetensorsDraft, ReadsBackAsWanted) {
  TemporaryDirectory directory;
  auto want = wanted(kThree, {{"tied", "b"}}, R"({"format":"pt","note":"x"})");
  for (uint64_t limit : {kUnknown, uint64_t{8}}) {
    for (const auto& [name, content] : written(want, {.name = "", .max_shard_bytes = limit, .base_key = {}}))
      write_file(directory.at(name), content);
    auto store = std::move(*open_file_store(directory.path()));
    auto back = kSafetensors.open(*store, "", {});
    ASSERT_TRUE(back.ok()) << back.error().text();
    ASSERT_EQ(back->size(), 4u);
    EXPECT_EQ(back->same_as(*back->find("tied")), *back->find("b"));
    auto metadata = *parse_json(value_of(*back));
    EXPECT_EQ(metadata["note"], "x");
    EXPECT_EQ(metadata["format"], "pt");
    EXPECT_FALSE(metadata.contains("tied"));
  }
}

}  // namespace
}  // namespace shardwright
