// Fixtures: tests/data/make_hdf5.py says what each file holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "shardwright/format/values_suite.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;

struct Opened {
  std::unique_ptr<Store> store;
  Catalog catalog;
  std::map<std::string, Bytes> values;
};

Opened open_fixture(const Format& format, const std::string& directory, const std::string& key) {
  Opened out;
  auto store = open_file_store(testing::data_path(directory));
  EXPECT_TRUE(store.ok());
  out.store = std::move(*store);
  EXPECT_EQ(sniff_format(*out.store, key), &format);
  auto catalog = format.open(*out.store, key, {});
  EXPECT_TRUE(catalog.ok()) << (catalog.ok() ? "" : catalog.error().text());
  if (catalog.ok()) out.catalog = *catalog;
  out.values = testing::all_values(*out.store, out.catalog);
  return out;
}

/// 0, 1, 2, ... as the given type.
template <class T>
Bytes counted(size_t count) {
  Bytes out;
  for (size_t i = 0; i < count; ++i) append_le<T>(out, static_cast<T>(i));
  return out;
}

void expect_tensor(const Opened& file, const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                   const Bytes& bytes) {
  auto id = file.catalog.find(name);
  ASSERT_TRUE(id) << name;
  auto spec = file.catalog.spec(*id);
  EXPECT_EQ(spec.dtype, dtype) << name;
  EXPECT_THAT(spec.shape, ::testing::ElementsAreArray(shape)) << name;
  EXPECT_EQ(file.values.at(name), bytes) << name;
}

Bytes half_counted(size_t count) {  // 0, 1, 2, ... as binary16, by hand
  Bytes out;
  for (size_t i = 0; i < count; ++i) {
    int exponent = 0;
    double fraction = std::frexp(static_cast<double>(i), &exponent);
    append_le<uint16_t>(
        out, i == 0 ? 0 : static_cast<uint16_t>(((exponent + 14) << 10) + static_cast<int>((fraction * 2 - 1) * 1024)));
  }
  return out;
}

void check_types(const Opened& file) {
  for (std::string order : {"little/", "big/"}) {
    expect_tensor(file, order + "i1", DType::kI8, {2, 3}, counted<int8_t>(6));
    expect_tensor(file, order + "i2", DType::kI16, {2, 3}, counted<int16_t>(6));
    expect_tensor(file, order + "i4", DType::kI32, {2, 3}, counted<int32_t>(6));
    expect_tensor(file, order + "i8", DType::kI64, {2, 3}, counted<int64_t>(6));
    expect_tensor(file, order + "u1", DType::kU8, {2, 3}, counted<uint8_t>(6));
    expect_tensor(file, order + "u2", DType::kU16, {2, 3}, counted<uint16_t>(6));
    expect_tensor(file, order + "u4", DType::kU32, {2, 3}, counted<uint32_t>(6));
    expect_tensor(file, order + "u8", DType::kU64, {2, 3}, counted<uint64_t>(6));
    expect_tensor(file, order + "f2", DType::kF16, {2, 3}, half_counted(6));
    expect_tensor(file, order + "f4", DType::kF32, {2, 3}, counted<float>(6));
    expect_tensor(file, order + "f8", DType::kF64, {2, 3}, counted<double>(6));
    Bytes complex;
    for (int i = 0; i < 6; ++i) {
      append_le<float>(complex, static_cast<float>(i));
      append_le<float>(complex, 0);
    }
    expect_tensor(file, order + "c8", DType::kC64, {2, 3}, complex);
  }
  Bytes bits;
  for (int i = 0; i < 5; ++i) append_le<uint8_t>(bits, static_cast<uint8_t>(i % 2));
  expect_tensor(file, "bool", DType::kBool, {5}, bits);
  expect_tensor(file, "scalar", DType::kF32, {}, [] {
    Bytes b;
    append_le<float>(b, 7);
    return b;
  }());
  expect_tensor(file, "empty", DType::kF32, {0, 3}, {});
  expect_tensor(file, "enumeration", DType::kI16, {3}, counted<int16_t>(3));
  expect_tensor(file, "named_enumeration", DType::kI16, {3}, counted<int16_t>(3));
}

void check_opaque(const Opened& file) {
  // 0 to 5: bf16 is the upper half of binary32; the float8 bits are those of ml_dtypes.
  expect_tensor(file, "opaque/bfloat16", DType::kBF16, {2, 3}, [] {
    Bytes out;
    for (int bits : {0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0})
      append_le<uint16_t>(out, static_cast<uint16_t>(bits));
    return out;
  }());
  auto bytes = [](std::initializer_list<int> list) {
    Bytes out;
    for (int value : list) out.push_back(static_cast<std::byte>(value));
    return out;
  };
  expect_tensor(file, "opaque/float8_e4m3fn", DType::kF8E4M3, {2, 3}, bytes({0x00, 0x38, 0x40, 0x44, 0x48, 0x4a}));
  expect_tensor(file, "opaque/float8_e5m2", DType::kF8E5M2, {2, 3}, bytes({0x00, 0x3c, 0x40, 0x42, 0x44, 0x45}));
  expect_tensor(file, "opaque/float8_e4m3fnuz", DType::kF8E4M3FNUZ, {2, 3},
                bytes({0x00, 0x40, 0x48, 0x4c, 0x50, 0x52}));
  expect_tensor(file, "opaque/float8_e5m2fnuz", DType::kF8E5M2FNUZ, {2, 3},
                bytes({0x00, 0x40, 0x44, 0x46, 0x48, 0x49}));
  EXPECT_EQ(file.catalog.spec(*file.catalog.find("opaque/float8_e8m0fnu")).dtype, DType::kF8E8M0);
  expect_tensor(file, "opaque/float4_e2m1fn", DType::kF4, {3, 4}, counted<uint8_t>(6));
  expect_tensor(file, "opaque/F6_E2M3", DType::kF6E2M3, {12}, counted<uint8_t>(9));
}

TEST(Hdf5Reader, EveryTypeInBothByteOrders) {
  auto file = open_fixture(kHdf5, "hdf5", "types.h5");
  EXPECT_EQ(file.catalog.size(), 24u + 1 + 8 + 2 + 2);
  check_types(file);
  check_opaque(file);
}

TEST(Hdf5Reader, NewerGroupsWithCreationOrder) {
  auto file = open_fixture(kHdf5, "hdf5", "earliest_v110.h5");
  check_types(file);
  check_opaque(file);
}

void check_storage(const Opened& file) {
  for (std::string order : {"little/", "big/"}) {
    expect_tensor(file, order + "compact", DType::kF32, {2, 3}, counted<float>(6));
    expect_tensor(file, order + "whole_chunks", DType::kF32, {4, 6}, counted<float>(24));
    expect_tensor(file, order + "clipped_rows", DType::kF32, {5, 6}, counted<float>(30));
    expect_tensor(file, order + "clipped_both", DType::kF32, {5, 7}, counted<float>(35));
    for (const char* filtered : {"deflate", "shuffle", "fletcher32", "all_filters"})
      expect_tensor(file, order + filtered, DType::kF32, {50, 7}, counted<float>(350));
    expect_tensor(file, order + "many_chunks", DType::kF32, {600}, counted<float>(600));
    expect_tensor(file, order + "mixed_mask", DType::kF32, {8}, counted<float>(8));
    auto filled = [](std::initializer_list<float> list) {
      Bytes out;
      for (float value : list) append_le<float>(out, value);
      return out;
    };
    expect_tensor(file, order + "holes", DType::kF32, {8}, filled({9, 9, 9, 3, 4, 5, 9, 9}));
    expect_tensor(file, order + "unwritten", DType::kF32, {2, 5}, filled({9, 9, 9, 9, 9, 9, 9, 9, 9, 9}));
    expect_tensor(file, order + "unwritten_chunks", DType::kF32, {8}, Bytes(32));
    expect_tensor(file, order + "empty_chunks", DType::kF32, {0, 5}, {});
  }
}

TEST(Hdf5Reader, EveryStorageLayoutAndFilter) {
  auto file = open_fixture(kHdf5, "hdf5", "storage.h5");
  EXPECT_EQ(file.catalog.size(), 28u);
  check_storage(file);
  auto pieces = file.catalog.pieces(*file.catalog.find("little/all_filters"));
  ASSERT_EQ(pieces.size(), 6u);
  std::vector<std::string> chain;
  for (const auto& step : file.catalog.encoding(pieces[0].encoding).chain) chain.push_back(step.name);
  EXPECT_THAT(chain, ::testing::ElementsAre("shuffle", "zlib", "fletcher32"));
}

TEST(Hdf5Reader, NewestChunkIndexes) { check_storage(open_fixture(kHdf5, "hdf5", "storage_v110.h5")); }

TEST(Hdf5Reader, NewerStructuresThanTheLibraryKnowsAreUnsupported) {
  auto store = *open_file_store(testing::data_path("hdf5"));
  auto catalog = kHdf5.open(*store, "newer_library.h5", {});
  ASSERT_FALSE(catalog.ok());
  EXPECT_EQ(catalog.error().code, Code::kUnsupported) << catalog.error().text();
  EXPECT_THAT(catalog.error().hint, HasSubstr("libver"));
}

TEST(Hdf5Reader, UserBlockMovesEveryAddress) { check_storage(open_fixture(kHdf5, "hdf5", "userblock.h5")); }

TEST(Hdf5Reader, HardLinksAreTies) {
  auto file = open_fixture(kHdf5, "hdf5", "ties.h5");
  ASSERT_EQ(file.catalog.size(), 4u);
  EXPECT_EQ(file.catalog.tie_count(), 2u);
  auto kept = file.catalog.same_as(*file.catalog.find("z/vars/0"));
  EXPECT_EQ(file.catalog.same_as(*file.catalog.find("a/vars/0")), kept);
  EXPECT_EQ(file.catalog.same_as(*file.catalog.find("m/vars/0")), kept);
  for (const char* name : {"a/vars/0", "m/vars/0", "z/vars/0"}) EXPECT_EQ(file.values.at(name), counted<float>(4));
}

TEST(Hdf5Reader, TrueNamesComeFromAttributes) {
  auto file = open_fixture(kHdf5, "hdf5", "names.h5");
  std::vector<std::string> names;
  for (const auto& [name, bytes] : file.values) names.push_back(name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("model.0.weight", "a//b", std::string("with\0nul", 8), "alias!",
                                                     "layers/dense/vars/0"));
  EXPECT_EQ(file.catalog.same_as(*file.catalog.find("alias!")),
            file.catalog.same_as(*file.catalog.find("model.0.weight")));
  ASSERT_NE(file.catalog.value("keras.names"), nullptr);
  EXPECT_EQ(file.catalog.value("keras.names")->data, R"({"layers/dense/vars": "my dense"})");
  ASSERT_NE(file.catalog.value("metadata"), nullptr);
  EXPECT_EQ(file.catalog.value("metadata")->data, R"({"format": "pt"})");
}

TEST(Hdf5Reader, WhatIsNoTensorIsSkippedWithARemark) {
  auto file = open_fixture(kHdf5, "hdf5", "skipped.h5");
  EXPECT_EQ(file.catalog.size(), 1u);
  std::vector<Error> findings;
  OpenOptions verify;
  verify.findings = &findings;
  ASSERT_TRUE(kHdf5.open(*file.store, "skipped.h5", verify).ok());
  std::vector<std::string> left_out;
  for (const auto& finding : findings) left_out.push_back(finding.tensor);
  EXPECT_THAT(left_out,
              ::testing::UnorderedElementsAre("text", "texts", "fixed", "compound", "nothing", "reference", "ragged"));
}

TEST(Hdf5Reader, IsolatedReadingGivesTheSameCatalogue) {
  auto file = open_fixture(kHdf5, "hdf5", "storage.h5");
  OpenOptions options;
  options.isolate = true;
  auto isolated = kHdf5.open(*file.store, "storage.h5", options);
  ASSERT_TRUE(isolated.ok()) << isolated.error().text();
  EXPECT_EQ(testing::all_values(*file.store, *isolated), file.values);
}

}  // namespace
}  // namespace shardwright
