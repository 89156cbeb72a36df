#include "shardwright/format/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/format/coverage.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;

Place extent(ObjectId object, uint64_t offset, uint64_t length) { return {Place::kExtent, -1, object, offset, length}; }

TEST(Catalog, KeepsOrderAndFindsByName) {
  CatalogBuilder builder;
  auto file = builder.add_object({"a.bin", 100});
  std::vector<int64_t> shape{2, 3};
  for (const char* name : {"b", "a", "c/.."}) {
    ASSERT_TRUE(builder.add_tensor(name, DType::kF32, shape).ok());
    ASSERT_TRUE(builder.add_flat(extent(file, 8, 24), DType::kF32).ok());
  }
  auto catalog = builder.build();
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  EXPECT_EQ(catalog->spec(0).name, "b");
  EXPECT_EQ(catalog->find("c/.."), 2u);
  EXPECT_FALSE(catalog->find("d"));
  EXPECT_EQ(catalog->flat(1)->place.offset, 8u);
  EXPECT_EQ(catalog->total_bytes(), 72u);
}

TEST(Catalog, TiesShareOneExtent) {
  CatalogBuilder builder;
  auto file = builder.add_object({"a.bin", 100});
  std::vector<int64_t> shape{4}, none{0};
  ASSERT_TRUE(builder.add_tensor("x", DType::kF32, shape).ok());
  ASSERT_TRUE(builder.add_flat(extent(file, 0, 16), DType::kF32).ok());
  ASSERT_TRUE(builder.add_tensor("y", DType::kF32, shape).ok());
  ASSERT_TRUE(builder.add_flat(extent(file, 0, 16), DType::kF32).ok());
  for (const char* name : {"e", "f"}) {  // empty ones share a place, and are no tie
    ASSERT_TRUE(builder.add_tensor(name, DType::kF32, none).ok());
    ASSERT_TRUE(builder.add_flat(extent(file, 16, 0), DType::kF32).ok());
  }
  builder.tie_equal_extents();
  auto catalog = builder.build();
  ASSERT_TRUE(catalog.ok());
  EXPECT_EQ(catalog->same_as(1), 0u);
  EXPECT_EQ(catalog->same_as(3), 3u);
  EXPECT_EQ(catalog->tie_count(), 1u);
  EXPECT_EQ(catalog->pieces(1).front().place.length, 16u);
  EXPECT_EQ(catalog->total_bytes(), 16u);
}

TEST(Catalog, RefusesWhatCannotBe) {
  std::vector<int64_t> shape{2, 3}, huge{1ll << 40, 1ll << 40}, negative{-1};
  CatalogBuilder builder;
  auto file = builder.add_object({"a.bin", 20});
  EXPECT_EQ(builder.add_tensor("huge", DType::kF32, huge).error().code, Code::kCorrupt);
  EXPECT_EQ(builder.add_tensor("negative", DType::kF32, negative).error().code, Code::kCorrupt);
  ASSERT_TRUE(builder.add_tensor("w", DType::kF32, shape).ok());
  auto length = builder.add_flat(extent(file, 0, 20), DType::kF32);
  EXPECT_THAT(length.error().text(), HasSubstr("expected 24 bytes"));
  auto beyond = builder.add_flat(extent(file, 0, 24), DType::kF32);
  EXPECT_THAT(beyond.error().text(), HasSubstr("beyond the end"));
  EXPECT_EQ(beyond.error().tensor, "w");
  auto wrap = builder.add_flat(extent(file, ~0ull - 8, 24), DType::kF32);
  EXPECT_EQ(wrap.error().code, Code::kCorrupt);
  auto encoding = builder.add_encoding({DType::kF32});
  EXPECT_FALSE(builder.add_piece({{{0, 2}, {2, 2}}, extent(file, 0, 16), encoding, {}}).ok());  // outside the shape
  EXPECT_FALSE(
      builder.add_piece({{{0, 0}, {2, 2}}, extent(file, 0, 16), encoding, {3, 1}}).ok());  // strides reach 20 bytes
  EXPECT_FALSE(builder.add_piece({{{0, 0}, {2, 2}}, extent(file, 0, 16), encoding, {-1, 1}}).ok());
}

TEST(Catalog, RefusesDuplicateNamesAndHoles) {
  std::vector<int64_t> shape{4};
  CatalogBuilder twice;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(twice.add_tensor("w", DType::kU8, shape).ok());
    ASSERT_TRUE(twice.add_flat(twice.add_literal(Bytes(4)), DType::kU8).ok());
  }
  EXPECT_EQ(twice.build().error().tensor, "w");
  CatalogBuilder hole;
  ASSERT_TRUE(hole.add_tensor("w", DType::kU8, shape).ok());
  ASSERT_TRUE(hole.add_piece({{{0}, {3}}, hole.add_literal(Bytes(3)), hole.add_encoding({DType::kU8}), {}}).ok());
  EXPECT_THAT(hole.build().error().text(), HasSubstr("do not cover"));
}

TEST(Catalog, SerializesWhole) {
  CatalogBuilder builder;
  auto file = builder.add_object({"k", 1000});
  std::vector<int64_t> shape{2, 2};
  ASSERT_TRUE(builder.add_tensor("chunks", DType::kF32, shape).ok());
  auto packed = builder.add_encoding({DType::kF32, true, {{"shuffle", 4}, {"zlib", 6}}, 8});
  ASSERT_TRUE(builder.add_piece({{{0, 0}, {1, 2}}, extent(file, 1, 5), packed, {}}).ok());
  ASSERT_TRUE(builder.add_piece({{{1, 0}, {1, 2}}, extent(file, 6, 7), packed, {}}).ok());
  ASSERT_TRUE(builder.add_tensor("fill", DType::kF32, shape).ok());
  ASSERT_TRUE(
      builder.add_piece({{{0, 0}, {2, 2}}, builder.add_literal(Bytes(4)), builder.add_encoding({DType::kF32}), {0, 0}})
          .ok());
  builder.tie(*builder.add_tensor("alias", DType::kF32, shape), 0);
  builder.set_value("metadata", {Value::kJson, "{}"});
  builder.set_members({"k"}, 1);
  builder.add_side_file({"config.json", "config.json"});
  auto catalog = builder.build();
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  auto bytes = catalog->serialize();
  auto again = Catalog::deserialize(bytes);
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(again->serialize(), bytes);
  EXPECT_EQ(again->pieces(0)[1].place.offset, 6u);
  EXPECT_EQ(again->same_as(2), 0u);
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(Catalog::deserialize(View(bytes).first(cut)).ok()) << cut;
  for (size_t at = 0; at < bytes.size(); ++at) {  // any damage is refused or read as something valid, never a crash
    auto damaged = bytes;
    damaged[at] ^= std::byte{0xFF};
    (void)Catalog::deserialize(damaged);
  }
}

TEST(Catalog, StaysSmall) {
  // The promise: 64 B and the name per tensor, 48 B per piece (irregular: box and strides beside it).
  constexpr size_t kTensors = 200'000, kNameBytes = 24;
  CatalogBuilder builder;
  builder.reserve(kTensors, kTensors * kNameBytes);
  auto file = builder.add_object({"f", kTensors * 8});
  std::vector<int64_t> shape{2, 2};
  for (size_t i = 0; i < kTensors; ++i) {
    auto digits = std::to_string(1'000'000 + i);
    ASSERT_TRUE(builder.add_tensor("model.layers." + digits + ".abc", DType::kBF16, shape).ok());
    ASSERT_TRUE(builder.add_flat(extent(file, 8 * i, 8), DType::kBF16).ok());
  }
  auto catalog = builder.build();
  ASSERT_TRUE(catalog.ok());
  EXPECT_LE(catalog->memory_bytes(), kTensors * (64 + 48 + kNameBytes));
}

TEST(Coverage, SeesGridsOverlapsAndHoles) {
  std::vector<int64_t> shape{4, 4};
  EXPECT_TRUE(check_coverage(shape, {{{0, 0}, {4, 2}}, {{0, 2}, {4, 2}}}).ok());
  EXPECT_TRUE(check_coverage(shape, {{{0, 0}, {4, 4}}, {{0, 0}, {4, 4}}}).ok());  // replicas
  EXPECT_TRUE(check_coverage(shape, {{{0, 0}, {2, 4}}, {{2, 0}, {2, 1}}, {{2, 1}, {2, 3}}}).ok());
  EXPECT_THAT(check_coverage(shape, {{{0, 0}, {4, 3}}, {{0, 2}, {4, 2}}}).error().message, HasSubstr("overlap"));
  EXPECT_FALSE(check_coverage(shape, {{{0, 0}, {2, 2}}, {{2, 2}, {2, 2}}}).ok());
  EXPECT_FALSE(check_coverage(shape, {}).ok());
  std::vector<int64_t> empty{0, 4};
  EXPECT_TRUE(check_coverage(empty, {{{0, 0}, {0, 4}}}).ok());
  EXPECT_FALSE(check_coverage(empty, {}).ok());  // volume alone cannot see it
}

}  // namespace
}  // namespace shardwright
