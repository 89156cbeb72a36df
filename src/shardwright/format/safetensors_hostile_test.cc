// One file per lie (tests/hostile/make_safetensors.py): what our reader says of each. check_safetensors_library.py holds the same files against the library.
#include <gtest/gtest.h>

#include <set>

#include "shardwright/format/safetensors_for_test.h"

namespace shardwright {
namespace {

using namespace testing_support;

constexpr const char* kDirectory = SHARDWRIGHT_TEST_DATA "/../hostile/safetensors";

struct Refused {
  const char* file;
  const char* phrase;  ///< of the whole text
  const char* tensor = "";
  Code code = Code::kCorrupt;
};

const Refused kRefused[] = {
    {"empty", "the file is empty"},
    {"seven_bytes", "header too small"},
    {"header_length_over_limit", "header too large (found a length of 100000001, expected at most 100000000)"},
    {"header_length_at_limit",
     "invalid header length: the file ends before its header (found a file of 10 bytes, expected at least 100000008 "
     "bytes)"},
    {"header_length_huge", "header too large"},
    {"header_length_only", "invalid header length"},
    {"git_lfs_pointer", "not a safetensors file but a Git LFS pointer"},
    {"hole_at_start", "hole of 1 byte", "a"},
    {"hole_between", "hole of 1 byte", "b"},
    {"overlap", "overlaps that of tensor \"a\" (found data_offsets [3, 5], expected a begin of 4)", "b"},
    {"same_range_twice", "overlaps that of tensor \"a\"", "b"},
    {"end_before_begin", "ends before it begins", "a"},
    {"trailing_junk", "8 bytes too many at the end (found 70 bytes, expected 62 bytes by its header)"},
    {"short_data", "the file is cut off (found 63 bytes, expected 65 bytes by its header)"},
    {"duplicate_name_same_info", "name given twice", "a"},
    {"duplicate_name_other_info", "two tensors have this name", "a"},
    {"duplicate_name_of_nothing", "two tensors have this name", "a"},
    {"duplicate_name_by_escape", "two tensors have this name", "a"},
    {"duplicate_metadata", "__metadata__ is given twice"},
    {"duplicate_key_in_metadata", "__metadata__: "},
    {"metadata_value_int", "__metadata__ key \"k\" is not a string (found number"},
    {"metadata_value_null", "__metadata__ key \"k\" is not a string (found null"},
    {"metadata_value_object", "__metadata__ key \"k\" is not a string (found object"},
    {"metadata_list", "__metadata__ is not an object (found an array"},
    {"metadata_string", "__metadata__ is not an object (found a string"},
    {"dtype_unknown", "unknown dtype (found \"F128\"", "a"},
    {"dtype_lower_case", "unknown dtype (found \"f32\"", "a"},
    {"duplicate_field", "duplicate field \"dtype\"", "a"},
    {"duplicate_extra_field", "duplicate field \"x\"", "a"},
    {"missing_field", "missing field \"shape\"", "a"},
    {"info_as_array", "tensor info is not an object (found an array", "a"},
    {"shape_fraction", "shape must be integers", "a"},
    {"shape_exponent", "shape must be integers", "a"},
    {"shape_minus_zero", "shape must be integers", "a"},
    {"shape_negative", "shape must be integers (found a negative number", "a"},
    {"shape_text", "shape must be integers (found a string", "a"},
    {"shape_over_64_bits", "shape must be integers", "a"},
    {"shape_number", "shape must be an array", "a"},
    {"offset_fraction", "data_offsets must be integers", "a"},
    {"offset_negative", "data_offsets must be integers (found a negative number", "a"},
    {"offset_over_64_bits", "data_offsets must be integers", "a"},
    {"offsets_one", "data_offsets must be two numbers (found 1", "a"},
    {"offsets_three", "data_offsets must be two numbers (found 3", "a"},
    {"trailing_nul", "it contains a NUL byte"},
    {"trailing_garbage", "header is not JSON"},
    {"top_level_array", "header is not JSON"},
    {"byte_order_mark", "header is not JSON"},
    {"nan_literal", "header is not JSON"},
    {"comment", "header is not JSON"},
    {"leading_zero", "header is not JSON"},
    {"name_lone_surrogate", "header is not JSON"},
    {"name_control_character", "header is not JSON"},
    {"f4_odd", "shape [3] of F4 does not fill whole bytes (found 12 bits", "a"},
    {"f6_odd", "shape [1] of F6_E3M2 does not fill whole bytes (found 6 bits", "a"},
    {"header_not_utf8", "header is not JSON"},
    {"name_not_utf8", "header is not UTF-8"},
    {"header_cut", "header is not JSON"},
    {"header_length_zero", "all zero bytes"},
    {"no_tensors_with_data", "1 bytes too many at the end"},
    {"nothing_past_the_end", "hole of 7 bytes", "a"},
    {"size_differs_from_shape", "data_offsets do not fit shape [2, 2] of I32 (found 0..4, 4 bytes, expected 16 bytes)",
     "a"},
    {"shape_overflow", "2^64 bits", "a"},
    {"shape_overflow_in_bits", "2^64 bits", "a"},
    {"shape_overflow_before_zero", "2^64 bits", "a"},
    {"shape_unsigned_only", "2^63 or larger", "a", Code::kUnsupported},
    {"liar", "the file is cut off"},
    {"nested_200_deep", "nested too deep", "a"},
    {"attack_ten_names_one_range", "overlaps that of tensor \"weight_0\"", "weight_1"},
    {"attack_header_of_1000_bytes", "invalid header length"},
    {"html_page", "not a safetensors file but an HTML page"},
    {"pickle", "not a safetensors file but a Python pickle"},
    {"zip_archive", "not a safetensors file but a zip archive"},
    {"gguf", "not a safetensors file but a GGUF file"},
    {"all_zeros", "not a safetensors file but all zero bytes"},
};

struct Accepted {
  const char* file;
  std::vector<std::string> tensors;  ///< name, dtype, shape and the bytes as hex
  const char* metadata = "none";
};

const Accepted kAccepted[] = {
    {"metadata_null", {"a U8 [1] 00"}},
    {"extra_field", {"a U8 [1] 00"}},
    {"name_escaped", {"é U8 [1] 07"}},
    {"f4_whole_bytes", {"a F4 [4] 1234"}},
    {"f6_whole_bytes", {"a F6_E2M3 [4] 010203"}},
    {"no_tensors", {}},
    {"spaces_around", {"a U8 [1] 07"}},
    {"nothing_to_store", {"a I32 [2, 0] "}},
    {"name_empty", {" U8 [1] 07"}},
    {"name_traversal", {"../../etc/passwd U8 [1] 07"}},
    {"name_metadata_in_disguise", {"a U8 [1] 07"}, R"({"format":"pt"})"},
    {"unaligned", {"a U8 [1] 00", "b F32 [1] 00000000"}},
    {"order_is_not_offset_order", {"a U8 [1] 01", "b U8 [1] 02"}},
};

std::unique_ptr<Store> hostile_store() { return std::move(*open_file_store(kDirectory)); }

TEST(SafetensorsHostile, LiesAreRefused) {
  auto store = hostile_store();
  for (const auto& row : kRefused) {
    std::string key = std::string(row.file) + ".safetensors";
    auto catalog = kSafetensors.open(*store, key, {});
    ASSERT_FALSE(catalog.ok()) << row.file;
    const auto& error = catalog.error();
    EXPECT_EQ(error.code, row.code) << row.file << ": " << error.text();
    EXPECT_NE(error.text().find(row.phrase), std::string::npos) << row.file << ": " << error.text();
    EXPECT_EQ(error.tensor, row.tensor) << row.file << ": " << error.text();
    EXPECT_EQ(error.path, store->describe(key)) << row.file;
    // Verifying, it is a finding or the error; never silence.
    std::vector<Error> findings;
    OpenOptions verify;
    verify.findings = &findings;
    auto verified = kSafetensors.open(*store, key, verify);
    EXPECT_TRUE(!verified.ok() || !findings.empty()) << row.file;
  }
}

TEST(SafetensorsHostile, OddButLegalIsRead) {
  auto store = hostile_store();
  for (const auto& row : kAccepted) {
    std::string key = std::string(row.file) + ".safetensors";
    auto catalog = kSafetensors.open(*store, key, {});
    ASSERT_TRUE(catalog.ok()) << row.file << ": " << catalog.error().text();
    std::vector<std::string> tensors;
    for (TensorId id = 0; id < catalog->size(); ++id) {
      auto spec = catalog->spec(id);
      auto flat = catalog->flat(id);
      ASSERT_TRUE(flat.has_value());
      Bytes data(flat->place.length);
      ReadOp op{key, flat->place.offset, data};
      ASSERT_TRUE(store->read({&op, 1}).ok());
      std::string hex;
      for (std::byte b : data) {
        hex += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
        hex += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
      }
      tensors.push_back(std::string(spec.name) + " " + std::string(dtype_row(spec.dtype).name) + " " +
                        shape_text(spec.shape) + " " + hex);
    }
    EXPECT_EQ(tensors, row.tensors) << row.file;
    EXPECT_EQ(value_of(*catalog), row.metadata) << row.file;
    std::vector<Error> findings;
    OpenOptions verify;
    verify.findings = &findings;
    EXPECT_TRUE(kSafetensors.open(*store, key, verify).ok());
    EXPECT_TRUE(findings.empty()) << row.file << ": " << findings[0].text();
  }
}

TEST(SafetensorsHostile, EveryFileHasARow) {
  std::set<std::string> rows, files;
  for (const auto& row : kRefused) rows.insert(row.file);
  for (const auto& row : kAccepted) rows.insert(row.file);
  for (const auto& name : tree(kDirectory)) files.insert(name.substr(0, name.rfind(".safetensors")));
  EXPECT_EQ(rows, files);
}

TEST(SafetensorsHostile, HugeClaimsCostNothing) {
  TemporaryDirectory directory;
  // Ten million tensors on one range make a header over the limit: its length alone is enough to refuse it.
  std::string text = safetensors_file("");
  uint64_t length = 800'000'000;
  std::memcpy(text.data(), &length, 8);
  write_file(directory.at("ten_million.safetensors"), text);
  std::filesystem::resize_file(directory.at("ten_million.safetensors"), 900'000'000);
  // A hundred thousand tensors that share 160,000 bytes would be 16 GB in memory.
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) header += (i == 0 ? "" : ",") + u8_tensor("w" + std::to_string(i), 160'000);
  write_file(directory.at("expansion.safetensors"), safetensors_file(header + "}", std::string(160'000, '\0')));
  auto store = std::move(*open_file_store(directory.path()));
  auto claimed = kSafetensors.open(*store, "ten_million.safetensors", {});
  ASSERT_FALSE(claimed.ok());
  EXPECT_NE(claimed.error().text().find("header too large"), std::string::npos);
  EXPECT_LE(store->bytes_read(), 64 * KiB);
  auto expansion = kSafetensors.open(*store, "expansion.safetensors", {});
  ASSERT_FALSE(expansion.ok());
  EXPECT_NE(expansion.error().text().find("overlaps"), std::string::npos);
}

TEST(SafetensorsHostile, LongHeaderThatIsNoJsonIsNotReadWhole) {
  TemporaryDirectory directory;
  // "PK\3\4" and zeros is a header length of 67 MB: a large zip archive would be read for nothing.
  write_file(directory.at("zip.safetensors"), std::string("PK\3\4\0\0\0\0\x14\0\0\0", 12));
  std::filesystem::resize_file(directory.at("zip.safetensors"), 100'000'000);
  auto store = std::move(*open_file_store(directory.path()));
  auto catalog = kSafetensors.open(*store, "zip.safetensors", {});
  ASSERT_FALSE(catalog.ok());
  EXPECT_NE(catalog.error().text().find("a zip archive"), std::string::npos) << catalog.error().text();
  EXPECT_LE(store->bytes_read(), 64 * KiB);
}

TEST(SafetensorsHostile, LargestLegalHeaderIsRead) {
  TemporaryDirectory directory;
  write_file(directory.at("x.safetensors"), safetensors_file("{}" + std::string(100'000'000 - 2, ' ')));
  auto store = std::move(*open_file_store(directory.path()));
  EXPECT_TRUE(kSafetensors.open(*store, "x.safetensors", {}).ok());
  OpenOptions capped;
  capped.max_metadata_bytes = MiB;
  auto refused = kSafetensors.open(*store, "x.safetensors", capped);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace shardwright
