#include "shardwright/engine/part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "shardwright/base/json.h"
#include "shardwright/engine/execute.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Shape = std::vector<int64_t>;

LayoutMap map_of(std::string_view mesh, std::vector<std::pair<std::string, TensorLayout>> rules) {
  LayoutMap map(*DeviceMesh::parse(mesh));
  for (auto& [pattern, layout] : rules) EXPECT_TRUE(map.set(pattern, layout).ok());
  return map;
}

/// A catalogue of tensors in memory, U8 but for what is said; `b` is tied to `a`.
struct Source {
  Bytes values = Bytes(4096);
  Catalog catalog;

  explicit Source(DType dtype = DType::kU8) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7);
    CatalogBuilder builder;
    auto at = reinterpret_cast<uint64_t>(values.data());
    auto a = *builder.add_tensor("a", dtype, Shape{8, 12});
    EXPECT_TRUE(builder.add_flat({Place::kMemory, -1, 0, at, 96}, dtype).ok());
    builder.tie(*builder.add_tensor("b", dtype, Shape{8, 12}), a);
    (void)*builder.add_tensor("scalar", dtype, Shape{});
    EXPECT_TRUE(builder.add_flat(builder.add_literal(View(values).first(1)), dtype).ok());
    builder.set_value("metadata", {Value::kJson, R"({"format": "pt"})"});
    catalog = *builder.build();
  }
};

TEST(TakePart, WritesDownWhereThePartLies) {
  Source source;
  Selected selected{source.catalog, {}};
  auto map = map_of("data=2,model=4", {{"^[ab]$", {{{"data"}, {"model"}}}}, {"typo", {}}});
  auto warnings = take_part({map, 6}, source.catalog, selected);
  ASSERT_TRUE(warnings.ok()) << warnings.error().text();
  EXPECT_THAT(*warnings, ElementsAre("the rule 'typo' names no tensor"));
  EXPECT_THAT(selected.want.spec(0).shape, ElementsAre(4, 3));
  EXPECT_EQ(selected.want.same_as(1), 0u);
  EXPECT_EQ(source.catalog.same_as(1), 0u);
  Json metadata = *parse_json(selected.want.value("metadata")->data);
  EXPECT_EQ(metadata["format"], "pt");
  EXPECT_EQ(
      *parse_json(metadata["shardwright.part"].get<std::string>()),
      *parse_json(
          R"({"axis_names": ["data", "model"], "shape": [2, 4], "rank": 6, "tensors": {"a": {"shape": [8, 12], "start": [4, 6]},
                            "b": {"shape": [8, 12], "start": [4, 6]}, "scalar": {"shape": [], "start": []}}})"));
  // A part of a part would say where it lies in the part.
  Selected again{selected.want, {}};
  EXPECT_THAT(take_part({map, 0}, selected.want, again).error().text(), HasSubstr("part itself"));
}

TEST(TakePart, TiesThatAreLaidOutDifferentlyPart) {
  Source source;
  Selected selected{source.catalog, {}};
  ASSERT_TRUE(take_part({map_of("x=4", {{"b", {{{"x"}}}}}), 1}, source.catalog, selected).ok());
  EXPECT_EQ(selected.want.same_as(1), 1u);
  EXPECT_THAT(source.catalog.spec(1).shape, ElementsAre(2, 12));
  EXPECT_EQ(source.catalog.flat(1)->place.offset, reinterpret_cast<uint64_t>(source.values.data()) + 24);
}

TEST(TakePart, RefusesWhatCannotBe) {
  Source source;
  Selected selected{source.catalog, {}};
  EXPECT_THAT(take_part({map_of("x=2", {}), 2}, source.catalog, selected).error().text(),
              HasSubstr("no such rank (found 2, expected 0 to 1)"));
  EXPECT_FALSE(take_part({map_of("x=2", {}), -1}, source.catalog, selected).ok());
  auto uneven = take_part({map_of("x=5", {{"^[ab]$", {{{"x"}}}}}), 0}, source.catalog, selected);
  EXPECT_THAT(uneven.error().text(),
              HasSubstr("tensor 'a': dimension 0 of size 8 is not divisible by axis 'x' of size 5"));
  EXPECT_THAT(uneven.error().context.back(), HasSubstr("1 more"));
}

TEST(CutCatalog, PackedTypesAreCutBetweenBlocksOnly) {
  CatalogBuilder builder;
  (void)*builder.add_tensor("packed", DType::kF4, Shape{4, 6});
  ASSERT_TRUE(builder.add_flat(builder.add_literal(Bytes(12)), DType::kF4).ok());
  Catalog packed = *builder.build();
  EXPECT_EQ(cut_catalog(packed, std::vector<Box>{{{1, 0}, {2, 6}}})->flat(0)->place.length, 6u);
  EXPECT_EQ(cut_catalog(packed, std::vector<Box>{{{0, 2}, {4, 2}}}).error().code, Code::kUnsupported);
}

/// Loads a box of tensor 0, as a part of its own and as a slice, and compares with the box of the whole. Of encoded chunks those that it cuts
/// are read, once, and no other byte.
void expect_box(const Checkpoint& checkpoint, const Bytes& values, const Shape& shape, const Box& box) {
  const Catalog& whole = checkpoint.catalog;
  Store& store = *checkpoint.store;
  auto cut = cut_catalog(whole, std::vector<Box>{box});
  ASSERT_TRUE(cut.ok()) << cut.error().text();
  CatalogBuilder builder;
  (void)*builder.add_tensor("t", DType::kU16, box.extent);
  Bytes out(box.elements() * 2), expected(out.size());
  ASSERT_TRUE(
      builder.add_flat({Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(out.data()), out.size()}, DType::kU16).ok());
  auto to = *builder.build();
  PlanOptions options;
  options.part_bytes = 64 * KiB;
  auto plan = plan_load(*cut, to, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  double excess = plan->summary.excess, needed = 0;
  uint64_t before = store.bytes_read(), chunks = 0;
  auto done = execute(*plan, {&store, nullptr, nullptr}, {});
  ASSERT_TRUE(done.ok()) << done.error().text();
  copy_strided(box, {Box::whole(shape), c_strides(shape)}, values.data(), {box, c_strides(box.extent)}, expected.data(),
               2);
  EXPECT_TRUE(out == expected) << box.text();
  const uint64_t of_part = store.bytes_read() - before;
  before = store.bytes_read();
  Bytes slice(out.size());
  ASSERT_OK(read_box(checkpoint, 0, box, slice, options));
  EXPECT_TRUE(slice == expected) << box.text();
  if (whole.encoding(whole.pieces(0).front().encoding).chain.empty()) return;
  for (const Piece& piece : whole.pieces(0))
    if (auto overlap = intersect(piece.box, box); overlap && !box.empty()) {
      chunks += piece.place.length;
      needed +=
          static_cast<double>(piece.place.length * overlap->elements()) / static_cast<double>(piece.box.elements());
    }
  EXPECT_EQ(of_part, chunks) << box.text();
  EXPECT_NEAR(excess, chunks == 0 ? 1.0 : static_cast<double>(chunks) / needed, 1e-9) << box.text();
  EXPECT_EQ(store.bytes_read() - before, chunks) << box.text();
}

std::unique_ptr<Store> store_of(View bytes) {
  auto store = open_memory_store();
  auto transaction = *store->begin("");
  EXPECT_TRUE(write_object(*transaction, "o", bytes).ok());
  EXPECT_TRUE(transaction->commit({{"o"}, {}, {}}).ok());
  return store;
}

// Stored in chunks of 7 x 5 deflated, edge chunks padded as HDF5 has them, or raw in two pieces: random boxes of it.
TEST(CutCatalog, BoxesOfChunkedAndOfRawTensors) {
  const Shape shape{23, 17}, chunk{7, 5};
  std::mt19937 random(11);
  Bytes values(23 * 17 * 2), stored;
  for (auto& b : values) b = static_cast<std::byte>(random());
  CatalogBuilder chunked;
  std::vector<Piece> pieces;
  (void)*chunked.add_tensor("t", DType::kU16, shape);
  std::vector<CodecSpec> chain = {{"zlib", 6}};
  uint32_t encoding = chunked.add_encoding({DType::kU16, false, chain, 7 * 5 * 2});
  for (int64_t r = 0; r < 23; r += 7)
    for (int64_t c = 0; c < 17; c += 5) {
      Box full{{r, c}, chunk}, box = *intersect(full, Box::whole(shape));
      Bytes dense(7 * 5 * 2), encoded;
      copy_strided(box, {Box::whole(shape), c_strides(shape)}, values.data(), {full, c_strides(chunk)}, dense.data(),
                   2);
      auto encoder = *make_encoder(chain, dense.size());
      ASSERT_TRUE(encoder
                      ->push(dense, true,
                             [&](View part) -> Status {
                               encoded.insert(encoded.end(), part.begin(), part.end());
                               return {};
                             })
                      .ok());
      pieces.push_back({box, {Place::kExtent, -1, 0, stored.size(), encoded.size()}, encoding, c_strides(chunk)});
      stored.insert(stored.end(), encoded.begin(), encoded.end());
    }
  chunked.add_object({"o", stored.size()});
  for (const auto& piece : pieces) ASSERT_TRUE(chunked.add_piece(piece).ok());
  CatalogBuilder raw;
  raw.add_object({"o", values.size()});
  (void)*raw.add_tensor("t", DType::kU16, shape);
  uint32_t plain = raw.add_encoding({DType::kU16});
  ASSERT_TRUE(raw.add_piece({{{0, 0}, {9, 17}}, {Place::kExtent, -1, 0, 0, 9 * 17 * 2}, plain}).ok());
  ASSERT_TRUE(raw.add_piece({{{9, 0}, {14, 17}}, {Place::kExtent, -1, 0, 9 * 17 * 2, 14 * 17 * 2}, plain}).ok());
  CatalogBuilder flat;
  flat.add_object({"o", values.size()});
  (void)*flat.add_tensor("t", DType::kU16, shape);
  ASSERT_TRUE(flat.add_flat({Place::kExtent, -1, 0, 0, values.size()}, DType::kU16).ok());
  Checkpoint chunked_one, raw_one, flat_one;
  chunked_one.catalog = *chunked.build();
  chunked_one.store = store_of(stored);
  raw_one.catalog = *raw.build();
  raw_one.store = store_of(values);
  flat_one.catalog = *flat.build();
  flat_one.store = store_of(values);
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 60; ++round) {
    Box box{{below(23), below(17)}, {1, 1}};
    for (size_t d = 0; d < 2; ++d) box.extent[d] = round % 10 == 0 && d == 0 ? 0 : 1 + below(shape[d] - box.start[d]);
    expect_box(chunked_one, values, shape, box);
    expect_box(raw_one, values, shape, box);
    expect_box(flat_one, values, shape, box);
  }
}

}  // namespace
}  // namespace shardwright
