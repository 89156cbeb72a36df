#include "shardwright/format/safetensors_header.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "shardwright/base/json.h"
#include "shardwright/format/damage_for_test.h"

namespace shardwright {
namespace {

using Parser = SafetensorsHeader::Parser;

struct Seen {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;
  bool operator==(const Seen&) const = default;
};

struct Read {
  std::vector<Seen> tensors;
  std::vector<Error> errors;
  uint64_t data_bytes = 0;
};

Read read_all(const SafetensorsHeader& header) {
  Read out;
  auto size = header.visit(
      [&](const SafetensorsEntry& e) {
        out.tensors.push_back({std::string(e.name),
                               std::string(dtype_row(e.dtype).name),
                               {e.shape.begin(), e.shape.end()},
                               e.begin,
                               e.end});
        return Status();
      },
      [&](Error error) {
        out.errors.push_back(std::move(error));
        return Status();
      });
  out.data_bytes = size.value_or(0);
  return out;
}

Error error_of(const std::string& text) {
  auto header = SafetensorsHeader::parse(text);
  if (!header.ok()) return header.error();
  auto read = read_all(*header);
  return read.errors.empty() ? fail(Code::kInternal, "no error at all") : read.errors[0];
}

TEST(SafetensorsHeader, PlainFormIsScanned) {
  std::string text =
      R"({"__metadata__":{"format":"pt","n":"a\"b"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
      R"("b.x":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}   )";
  auto header = SafetensorsHeader::parse_with(Parser::kFast, text);
  ASSERT_TRUE(header.ok()) << header.error().text();
  EXPECT_EQ(header->size(), 2u);
  EXPECT_EQ(header->name_bytes(), 4u);
  std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}, {"n", "a\"b"}};
  EXPECT_EQ(header->metadata(), metadata);
  auto read = read_all(*header);
  std::vector<Seen> expected = {{"b.x", "I64", {}, 0, 8}, {"w", "F32", {2, 3}, 8, 32}};
  EXPECT_EQ(read.tensors, expected);
  EXPECT_TRUE(read.errors.empty());
  EXPECT_EQ(read.data_bytes, 32u);
}

TEST(SafetensorsHeader, FullParserTakesWhatTheScannerLeaves) {
  std::string text =
      "\n{\"\\u00e9\\n\" : {\"extra\": [1.5, {\"a\": null}], \"data_offsets\" : [ 0 , 6 ] ,\"shape\":[ 3 "
      "],\"dtype\":\"F\\u00316\"} }\t";
  EXPECT_FALSE(SafetensorsHeader::parse_with(Parser::kFast, text).ok());
  auto header = SafetensorsHeader::parse(text);
  ASSERT_TRUE(header.ok()) << header.error().text();
  auto read = read_all(*header);
  ASSERT_EQ(read.tensors.size(), 1u);
  EXPECT_EQ(read.tensors[0], (Seen{"é\n", "F16", {3}, 0, 6}));
}

TEST(SafetensorsHeader, HeaderWithEscapesKeepsItsNamesWhenMoved) {
  auto parsed = SafetensorsHeader::parse(R"({"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})");
  ASSERT_TRUE(parsed.ok());
  SafetensorsHeader moved = std::move(*parsed);
  EXPECT_EQ(read_all(moved).tensors.at(0).name, "a");
}

TEST(SafetensorsHeader, ErrorsNameTensorPlaceFoundAndExpected) {
  auto error = error_of(R"({"a":{"dtype":"F32","shape":[3,4],"data_offsets":[0,40]}})");
  EXPECT_EQ(error.code, Code::kCorrupt);
  EXPECT_EQ(error.tensor, "a");
  EXPECT_EQ(error.offset, 8u + 57u);
  EXPECT_EQ(error.found, "0..40, 40 bytes");
  EXPECT_EQ(error.expected, "48 bytes");

  error = error_of(R"({"a":{"dtype":"F128","shape":[],"data_offsets":[0,16]}})");
  EXPECT_EQ(error.tensor, "a");
  EXPECT_EQ(error.offset, 8u + 20u);  // behind the value
  EXPECT_EQ(error.found, "\"F128\"");

  error = error_of(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})");
  EXPECT_EQ(error.tensor, "b");
  EXPECT_NE(error.message.find("hole of 1 byte"), std::string::npos) << error.message;
}

TEST(SafetensorsHeader, VisitGoesOnAfterAnError) {
  std::string text =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[9],"data_offsets":[1,3]},)"
      R"("c":{"dtype":"U8","shape":[1],"data_offsets":[2,4]},"d":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})";
  auto header = SafetensorsHeader::parse(text);
  ASSERT_TRUE(header.ok());
  auto read = read_all(*header);
  ASSERT_EQ(read.errors.size(), 2u);
  EXPECT_EQ(read.errors[0].tensor, "b");
  EXPECT_EQ(read.errors[1].tensor, "c");
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[1].name, "d");
}

TEST(SafetensorsHeader, SizesAtTheLimits) {
  // 2^64 bits and more do not exist; the product is taken in order, as the format's own reader does.
  EXPECT_NE(error_of(R"({"a":{"dtype":"I32","shape":[2,18446744073709551614],"data_offsets":[0,16]}})")
                .message.find("2^64 bits"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"a":{"dtype":"I32","shape":[2,9223372036854775807],"data_offsets":[0,16]}})")
                .message.find("2^64 bits"),
            std::string::npos);
  EXPECT_EQ(
      error_of(R"({"a":{"dtype":"I32","shape":[18446744073709551615,18446744073709551615,0],"data_offsets":[0,0]}})")
          .code,
      Code::kCorrupt);
  // Legal, but not for signed extents.
  EXPECT_EQ(error_of(R"({"a":{"dtype":"I32","shape":[0,18446744073709551615],"data_offsets":[0,0]}})").code,
            Code::kUnsupported);
  auto zero = SafetensorsHeader::parse(R"({"a":{"dtype":"I32","shape":[0,9223372036854775807],"data_offsets":[0,0]}})");
  ASSERT_TRUE(zero.ok());
  EXPECT_EQ(read_all(*zero).tensors.size(), 1u);
  std::string many = R"({"a":{"dtype":"U8","shape":[)" + std::string("1");
  for (int i = 1; i < 1000; ++i) many += ",1";
  many += R"(],"data_offsets":[0,1]}})";
  auto rank = SafetensorsHeader::parse(many);
  ASSERT_TRUE(rank.ok());
  EXPECT_EQ(read_all(*rank).tensors.at(0).shape.size(), 1000u);
}

TEST(SafetensorsHeader, WriterMakesTheBytesOfTheLibrary) {
  std::ifstream file(SHARDWRIGHT_TEST_DATA "/safetensors_bytes.json");
  std::stringstream text;
  text << file.rdbuf();
  auto cases = parse_json(text.str());
  ASSERT_TRUE(cases.ok()) << cases.error().text();
  ASSERT_GE(cases->size(), 10u);
  for (const auto& one : *cases) {
    struct Tensor {
      std::string name;
      DType dtype;
      std::vector<int64_t> shape;
    };
    std::vector<Tensor> tensors;
    for (const auto& t : one["tensors"])
      tensors.push_back(
          {t[0].get<std::string>(), *dtype_from_name(t[1].get<std::string>()), t[2].get<std::vector<int64_t>>()});
    std::sort(tensors.begin(), tensors.end(),
              [](const Tensor& a, const Tensor& b) { return safetensors_before(a.dtype, a.name, b.dtype, b.name); });
    std::vector<std::pair<std::string, std::string>> metadata;
    if (!one["metadata"].is_null())
      for (const auto& [key, value] : one["metadata"].items()) metadata.emplace_back(key, value.get<std::string>());
    SafetensorsHeaderWriter writer(one["metadata"].is_null() ? nullptr : &metadata);
    uint64_t offset = 0, bound = 8 + 8 + 40;
    for (const auto& t : tensors) {
      uint64_t bytes = *bytes_of_elements(t.dtype, *element_count(t.shape));
      writer.add(t.name, t.dtype, t.shape, offset, offset + bytes);
      offset += bytes;
      bound += safetensors_entry_bound(t.name, t.shape);
    }
    Bytes head = writer.finish();
    std::string hex;
    for (std::byte b : head) {
      hex += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
      hex += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
    }
    EXPECT_EQ(hex, one["head"].get<std::string>()) << text_of(head);
    EXPECT_EQ(head.size() + offset, one["size"].get<uint64_t>());
    EXPECT_LE(head.size(), bound);
    // And back.
    auto parsed = SafetensorsHeader::parse(text_of(View(head).subspan(8)));
    ASSERT_TRUE(parsed.ok()) << parsed.error().text();
    auto read = read_all(*parsed);
    EXPECT_TRUE(read.errors.empty());
    ASSERT_EQ(read.tensors.size(), tensors.size());
    for (const auto& seen : read.tensors) {
      auto at = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == seen.name; });
      ASSERT_NE(at, tensors.end());
      EXPECT_EQ(seen.shape, at->shape);
    }
  }
}

/// Whatever the fast scanner accepts, the full parser accepts and reads the same.
void expect_same(const std::string& text) {
  auto fast = SafetensorsHeader::parse_with(Parser::kFast, text);
  if (!fast.ok()) return;
  auto full = SafetensorsHeader::parse_with(Parser::kFull, text);
  ASSERT_TRUE(full.ok()) << full.error().text() << "\n" << text;
  auto a = read_all(*fast), b = read_all(*full);
  EXPECT_EQ(a.tensors, b.tensors) << text;
  EXPECT_EQ(a.errors.size(), b.errors.size()) << text;
  EXPECT_EQ(fast->metadata(), full->metadata()) << text;
}

TEST(SafetensorsHeader, BothParsersAgreeOnDamagedHeaders) {
  uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::string good =
      R"({"__metadata__":{"format":"pt"},"w.0":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"data_offsets":[24,24],"dtype":"F8_E4M3","shape":[0,10]}, "x" : {"dtype":"BOOL","shape":[ ],"data_offsets":[24,25]}}  )";
  size_t accepted = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string text = damaged(good, random);
    accepted += SafetensorsHeader::parse_with(Parser::kFast, text).ok();
    expect_same(text);
  }
  EXPECT_GT(accepted, 100u);  // else the test compares nothing
}

}  // namespace
}  // namespace shardwright
