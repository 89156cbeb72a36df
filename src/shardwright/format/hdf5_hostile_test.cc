// One file per lie: tests/hostile/make_hdf5.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "shardwright/codec/codec.h"
#include "shardwright/format/values_suite.h"

namespace shardwright {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Lie {
  const char* file;
  Code code;
  const char* text;    ///< part of the error
  const char* tensor;  ///< its place; nullptr: not looked at
};

constexpr Lie kLies[] = {
    {"soft_link.weights.h5", Code::kUnsupported, "soft links are not followed", "layers/soft"},
    {"external_link.weights.h5", Code::kUnsupported, "external links are not followed", "layers/external"},
    {"group_cycle.weights.h5", Code::kCorrupt, "group that contains itself", "layers/dense/again"},
    {"root_in_itself.weights.h5", Code::kCorrupt, "group that contains itself", "me"},
    {"group_with_two_names.weights.h5", Code::kUnsupported, "group with two names", nullptr},
    {"billion_laughs.weights.h5", Code::kUnsupported, "group with two names", nullptr},
    {"too_deep.weights.h5", Code::kUnsupported, "nested deeper than 256 levels", nullptr},
    {"external_storage.weights.h5", Code::kUnsupported, "external storage", "vars/0"},
    {"virtual_dataset.weights.h5", Code::kUnsupported, "virtual dataset", "vars/0"},
    {"shape_bomb_unwritten.weights.h5", Code::kCorrupt, "shape bomb", "vars/0"},
    {"shape_bomb_one_chunk.weights.h5", Code::kCorrupt, "shape bomb", "vars/0"},
    {"shape_bomb_contiguous.weights.h5", Code::kCorrupt, "shape bomb", "vars"},
    {"too_many_chunks.weights.h5", Code::kUnsupported, "too many chunks", "vars/0"},
    {"opaque_one_byte.weights.h5", Code::kUnsupported, "without a `dtype` attribute", "vars/0"},
    {"opaque_two_bytes.weights.h5", Code::kUnsupported, "without a `dtype` attribute", "vars/0"},
    {"opaque_unknown_dtype.weights.h5", Code::kUnsupported, "posit16", "vars/0"},
    {"opaque_wrong_size.weights.h5", Code::kCorrupt, "do not have the size of their `dtype` attribute", "vars/0"},
    {"float4_without_shape.weights.h5", Code::kUnsupported, "`shape` attribute", "vars/0"},
    {"float4_wrong_shape.weights.h5", Code::kCorrupt, "`shape` attribute does not fit", "vars/0"},
    {"float4_negative_shape.weights.h5", Code::kCorrupt, "`shape` attribute does not fit", "vars/0"},
    {"long_double.weights.h5", Code::kUnsupported, "no dtype here can hold", "vars/0"},
    {"array_elements.weights.h5", Code::kUnsupported, "array-valued elements", "vars/0"},
    {"dataset_called_vars.weights.h5", Code::kCorrupt, "dataset where Keras has a group", "layers/dense/vars"},
    {"one_name_twice.weights.h5", Code::kCorrupt, "two tensors have this name", "same"},
    {"truncated.weights.h5", Code::kCorrupt, "truncated HDF5 file (found 6878 bytes, expected 6888 bytes", nullptr},
    {"end_of_file_too_far.weights.h5", Code::kCorrupt, "truncated HDF5 file", nullptr},
    {"short_superblock.weights.h5", Code::kCorrupt, "ends inside its superblock", nullptr},
    {"signature_only.weights.h5", Code::kCorrupt, "ends inside its superblock", nullptr},
    {"unknown_superblock_version.weights.h5", Code::kUnsupported, "version of the HDF5 superblock", nullptr},
    {"four_byte_offsets.weights.h5", Code::kUnsupported, "not 8 bytes wide", nullptr},
    {"root_group_beyond_the_end.weights.h5", Code::kCorrupt, "", nullptr},
    {"payload_beyond_the_end.weights.h5", Code::kCorrupt, "beyond the end of the file", "layers/dense/vars/1"},
    {"payload_offset_overflows.weights.h5", Code::kCorrupt, "", "layers/dense/vars/1"},
    {"payloads_overlap.weights.h5", Code::kCorrupt, "overlaps 'layers/dense/vars/0'", "layers/dense/vars/1"},
    {"length_does_not_fit_shape.weights.h5", Code::kCorrupt, "", "layers/dense/vars/1"},
    {"dataset_header_destroyed.weights.h5", Code::kCorrupt, "cannot open an HDF5 object", "layers/dense/vars/1"},
    {"heap_destroyed.weights.h5", Code::kCorrupt, "", nullptr},
    {"heap_of_a_petabyte.weights.h5", Code::kCorrupt, "", nullptr},
    {"tree_with_too_many_entries.weights.h5", Code::kCorrupt, "", nullptr},
    {"heap_at_no_address.weights.h5", Code::kCorrupt, "beyond the end of the file", nullptr},
    {"string_heap_gone.weights.h5", Code::kCorrupt, "no HDF5 global heap where a string should lie",
     "layers/dense/vars"},
    {"string_heap_of_no_size.weights.h5", Code::kCorrupt, "smaller than its header", "layers/dense/vars"},
    {"string_heap_of_a_petabyte.weights.h5", Code::kCorrupt, "ends beyond the end of the file", "layers/dense/vars"},
    {"string_heap_free_for_ever.weights.h5", Code::kCorrupt, "(found no such object", "layers/dense/vars"},
    {"string_object_larger_than_heap.weights.h5", Code::kCorrupt, "larger than the heap", "layers/dense/vars"},
    {"string_object_smaller_than_string.weights.h5", Code::kCorrupt, "found 2 bytes, expected 13 bytes in object 1",
     "layers/dense/vars"},
    {"string_object_absent.weights.h5", Code::kCorrupt, "expected 13 bytes in object 5", "layers/dense/vars"},
    {"string_reference_beyond_the_end.weights.h5", Code::kCorrupt, "beyond the end of the file", "layers/dense/vars"},
    {"string_too_long.weights.h5", Code::kResourceExhausted, "attribute is too long", "layers/dense/vars"},
    {"missing_shard/x.weights.json", Code::kNotFound,
     "1 of 2 shards that the index names are missing: x_00001.weights.h5", nullptr},
    {"missing_first_shard/x.weights.json", Code::kNotFound, "missing: x_00000.weights.h5", nullptr},
    {"surplus_layer_in_shard/x.weights.json", Code::kCorrupt, "the index does not name this layer", "layers/c/vars/0"},
    {"surplus_entry/x.weights.json", Code::kCorrupt, "the index says that 'x_00001.weights.h5' holds '/layers/zz/vars'",
     nullptr},
    {"shard_not_listed_for_layer/x.weights.json", Code::kCorrupt, "the index does not name this shard for this layer",
     "layers/a/vars/1"},
    {"variable_in_two_shards/x.weights.json", Code::kCorrupt, "two tensors have this name", "layers/a/vars/0"},
    {"escaping_entry/x.weights.json", Code::kCorrupt, "not the name of a file beside the index", nullptr},
    {"duplicate_key/x.weights.json", Code::kCorrupt, "/layers/a/vars", nullptr},
    {"no_weight_map/x.weights.json", Code::kCorrupt, "no \"weight_map\"", nullptr},
    {"index_is_no_json/x.weights.json", Code::kCorrupt, "", nullptr},
    {"shard_is_no_hdf5/x.weights.json", Code::kCorrupt, "not an HDF5 file", nullptr},
};

/// Loads, but verify remarks on it.
constexpr Lie kOdd[] = {
    {"surplus_shard/x.weights.json", Code::kCorrupt, "shard that the index does not name", nullptr},
    {"wrong_total_size/x.weights.json", Code::kCorrupt, "total_size is wrong (found 33.0, expected 32.0)", nullptr},
    {"renamed_index/y.weights.json", Code::kCorrupt, "renamed without its shards", nullptr},
};

/// Filtered in ways that nobody here can decode: listed all the same.
constexpr const char* kFiltered[] = {"lzf_filter.weights.h5", "scaleoffset_filter.weights.h5"};

constexpr const char* kGood[] = {"plain.weights.h5", "string.weights.h5", "good_set/x.weights.json"};
/// No HDF5 at all: no format claims them (their error is open_checkpoint's).
constexpr const char* kNotOurs[] = {"empty.weights.h5", "lfs_pointer.weights.h5", "html_page.weights.h5"};

std::string root() { return testing::data_path("../hostile/hdf5"); }

Result<Catalog> open(const std::string& file, OpenOptions options = {}) {
  auto path = std::filesystem::path(root()) / file;
  auto store = *open_file_store(path.parent_path().string());
  auto key = path.filename().string();
  const Format& format = key.ends_with(".json") ? kKerasSharded : kKerasH5;
  EXPECT_EQ(sniff_format(*store, key), &format) << file;
  return format.open(*store, key, options);
}

TEST(Hdf5Hostile, EveryLieGetsItsError) {
  for (const auto& lie : kLies) {
    SCOPED_TRACE(lie.file);
    auto catalog = open(lie.file);
    if (catalog.ok()) {
      ADD_FAILURE() << "opened";
      continue;
    }
    const auto& error = catalog.error();
    EXPECT_EQ(error.code, lie.code) << error.text();
    EXPECT_THAT(error.text(), HasSubstr(lie.text));
    EXPECT_THAT(error.path, HasSubstr("hdf5"));
    if (lie.tensor != nullptr) {
      EXPECT_EQ(error.tensor, lie.tensor);
    }
  }
}

TEST(Hdf5Hostile, VerifyGoesOnAndSaysTheSame) {
  for (const auto& lie : kLies) {
    SCOPED_TRACE(lie.file);
    std::vector<Error> findings;
    OpenOptions verify;
    verify.findings = &findings;
    auto catalog = open(lie.file, verify);
    if (!catalog.ok()) findings.push_back(catalog.error());
    std::vector<std::string> texts;
    for (const auto& finding : findings) texts.push_back(finding.text());
    EXPECT_THAT(texts, ::testing::Contains(HasSubstr(lie.text)));
  }
}

TEST(Hdf5Hostile, OddSetsLoadWithARemark) {
  for (const auto& odd : kOdd) {
    SCOPED_TRACE(odd.file);
    EXPECT_TRUE(open(odd.file).ok());
    std::vector<Error> findings;
    OpenOptions verify;
    verify.findings = &findings;
    EXPECT_TRUE(open(odd.file, verify).ok());
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].code, odd.code);
    EXPECT_THAT(findings[0].text(), HasSubstr(odd.text));
  }
}

TEST(Hdf5Hostile, UnknownFiltersAreInTheChain) {
  for (const char* file : kFiltered) {
    SCOPED_TRACE(file);
    auto catalog = open(file);
    ASSERT_TRUE(catalog.ok()) << catalog.error().text();
    ASSERT_EQ(catalog->size(), 1u);
    EXPECT_EQ(catalog->spec(0).shape[0], 100);
    const auto& encoding = catalog->encoding(catalog->pieces(0)[0].encoding);
    auto decoder = make_decoder(encoding.chain, encoding.decoded_bytes);
    ASSERT_FALSE(decoder.ok());
    EXPECT_EQ(decoder.error().code, Code::kUnsupported);
    EXPECT_THAT(decoder.error().text(),
                HasSubstr(std::string_view(file).starts_with("lzf") ? "HDF5 filter 32000" : "HDF5 filter 6"));
  }
}

TEST(Hdf5Hostile, IsolationSaysTheSame) {
  for (const auto& lie : {kLies[0], kLies[9], kLies[25]}) {
    OpenOptions options;
    options.isolate = true;
    auto catalog = open(lie.file, options);
    ASSERT_FALSE(catalog.ok()) << lie.file;
    EXPECT_EQ(catalog.error().text(), open(lie.file).error().text());
  }
}

TEST(Hdf5Hostile, EveryFileOfTheCorpusIsInATable) {
  std::set<std::string> listed;
  for (const auto& lie : kLies) listed.insert(lie.file);
  for (const auto& odd : kOdd) listed.insert(odd.file);
  listed.insert(std::begin(kFiltered), std::end(kFiltered));
  for (const char* good : kGood) {
    listed.insert(good);
    EXPECT_TRUE(open(good).ok()) << good;
  }
  for (const char* file : kNotOurs) {
    listed.insert(file);
    auto store = *open_file_store(root());
    EXPECT_EQ(sniff_format(*store, file), nullptr) << file;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root())) {
    auto file = std::filesystem::relative(entry.path(), root()).string();
    bool shard = entry.path().parent_path() != std::filesystem::path(root()) && entry.path().extension() == ".h5";
    EXPECT_TRUE(!entry.is_regular_file() || shard || listed.contains(file)) << file;
  }
}

}  // namespace
}  // namespace shardwright
