#include "shardwright/format/zarr_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/base/checksum.h"
#include "shardwright/format/zarr_chunks.h"
#include "shardwright/store/ocdbt_write.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// `.zarray` as Orbax writes it, with members replaced.
std::string zarr2(const Json& change = Json::object()) {
  Json json =
      parse_json(
          R"({"chunks":[8,2],"compressor":{"id":"zstd","level":1},"dimension_separator":".","dtype":"<f4","fill_value":null,)"
          R"("filters":null,"order":"C","shape":[16,8],"zarr_format":2})")
          .value();
  json.update(change);
  return json.dump();
}

std::string zarr3(const Json& codecs, const Json& change = Json::object()) {
  Json json =
      parse_json(
          R"({"chunk_grid":{"configuration":{"chunk_shape":[8,2]},"name":"regular"},"chunk_key_encoding":{"name":"default"},)"
          R"("data_type":"float32","fill_value":0.0,"node_type":"array","shape":[16,8],"zarr_format":3})")
          .value();
  json["codecs"] = codecs;
  json.update(change);
  return json.dump();
}

Json json_of(std::string_view text) { return parse_json(text).value(); }

TEST(ZarrMetadata, ReadsVersion2) {
  auto array = parse_zarr2_array(zarr2());
  ASSERT_TRUE(array.ok()) << array.error().text();
  EXPECT_THAT(array->shape, ElementsAre(16, 8));
  EXPECT_THAT(array->chunk, ElementsAre(8, 2));
  EXPECT_EQ(array->dtype, DType::kF32);
  EXPECT_THAT(array->chain, ElementsAre(CodecSpec{"zstd", 1}));
  EXPECT_EQ(array->key_of(std::vector<int64_t>{1, 3}), "1.3");
  EXPECT_EQ(array->key_of({}), "0");
  auto slashed = parse_zarr2_array(
      zarr2({{"dimension_separator", "/"}, {"dtype", ">f8"}, {"compressor", nullptr}, {"order", "F"}}));
  ASSERT_TRUE(slashed.ok());
  EXPECT_TRUE(slashed->big_endian);
  EXPECT_EQ(slashed->key_of(std::vector<int64_t>{1, 3}), "1/3");
  EXPECT_THAT(slashed->order, ElementsAre(1, 0));
  // Encoded chunks are turned by a codec.
  auto turned =
      parse_zarr2_array(zarr2({{"order", "F"}, {"filters", json_of(R"([{"id":"shuffle","elementsize":4}])")}}));
  EXPECT_THAT(turned->chain,
              ElementsAre(CodecSpec{"transpose", 4, {8, 2, 1, 0}}, CodecSpec{"shuffle", 4}, CodecSpec{"zstd", 1}));
}

TEST(ZarrMetadata, ReadsTypesByEveryName) {
  const std::pair<const char*, DType> types[] = {{"|b1", DType::kBool},
                                                 {"<i2", DType::kI16},
                                                 {"|u1", DType::kU8},
                                                 {"<c8", DType::kC64},
                                                 {"<c16", DType::kC128},
                                                 {"bfloat16", DType::kBF16},
                                                 {"float8_e4m3fn", DType::kF8E4M3},
                                                 {"float8_e5m2", DType::kF8E5M2},
                                                 {"float8_e3m4", DType::kF8E3M4},
                                                 {"float8_e4m3b11fnuz", DType::kF8E4M3B11FNUZ}};
  for (const auto& [name, dtype] : types) {
    auto array = parse_zarr2_array(zarr2({{"dtype", name}}));
    ASSERT_TRUE(array.ok()) << name;
    EXPECT_EQ(array->dtype, dtype) << name;
    EXPECT_EQ(zarr_type_name(dtype, false), name);
  }
  auto small = parse_zarr2_array(zarr2({{"dtype", "int4"}}));
  EXPECT_EQ(small->dtype, DType::kI8);
  EXPECT_EQ(small->stored_as, "int4");
  EXPECT_EQ(zarr_type_name(DType::kF4, true), "");
  for (const char* unknown : {"<f16", "|S5", "<U3", "float4_e2m1fn", "int3", ""})
    EXPECT_EQ(parse_zarr2_array(zarr2({{"dtype", unknown}})).error().code, Code::kUnsupported) << unknown;
}

TEST(ZarrMetadata, ReadsVersion3) {
  auto orbax = json_of(
      R"([{"configuration":{"chunk_shape":[8,2],"codecs":[{"configuration":{"endian":"little"},"name":"bytes"},)"
      R"({"configuration":{"checksum":false,"level":3},"name":"zstd"}],"index_codecs":[{"configuration":{"endian":"little"},"name":"bytes"},)"
      R"({"name":"crc32c"}]},"name":"sharding_indexed"}])");
  auto array = parse_zarr3_array(zarr3(orbax));
  ASSERT_TRUE(array.ok()) << array.error().text();
  EXPECT_THAT(array->chain, ElementsAre(CodecSpec{"zstd", 3}, CodecSpec{"sharding_indexed"}));
  EXPECT_TRUE(array->inner.empty());
  EXPECT_EQ(array->key_of(std::vector<int64_t>{0, 1}), "c/0/1");
  EXPECT_EQ(array->key_of({}), "c");
  orbax[0]["configuration"]["chunk_shape"] = {4, 1};
  auto several = parse_zarr3_array(zarr3(orbax));
  ASSERT_TRUE(several.ok());
  EXPECT_THAT(several->inner, ElementsAre(4, 1));
  EXPECT_THAT(several->chain, ElementsAre(CodecSpec{"zstd", 3}));
  auto plain = parse_zarr3_array(zarr3(json_of(R"(["bytes",{"name":"gzip","configuration":{"level":5}},"crc32c"])")));
  EXPECT_THAT(plain->chain, ElementsAre(CodecSpec{"gzip", 5}, CodecSpec{"crc32c"}));
  auto turned = parse_zarr3_array(zarr3(json_of(
      R"([{"name":"transpose","configuration":{"order":[1,0]}},{"name":"bytes","configuration":{"endian":"big"}}])")));
  EXPECT_THAT(turned->order, ElementsAre(1, 0));
  EXPECT_TRUE(turned->big_endian);
}

TEST(ZarrMetadata, FillValues) {
  auto fill = [](const char* dtype, const Json& value) {
    return parse_zarr2_array(zarr2({{"dtype", dtype}, {"fill_value", value}}));
  };
  EXPECT_EQ(load_le<float>(fill("<f4", 1.5)->fill), 1.5f);
  EXPECT_EQ(load_le<uint32_t>(fill("<f4", "NaN")->fill) & 0x7fc00000u, 0x7fc00000u);
  // Text is a number in zarr 2, and bits in zarr 3, where it begins with 0x.
  EXPECT_EQ(load_le<float>(fill("<f4", "0x7fc00001")->fill), 2143289344.0f);
  EXPECT_EQ(load_le<float>(fill("<f4", "1.5")->fill), 1.5f);
  auto bits = parse_zarr3_array(zarr3(json_of(R"(["bytes"])"), {{"fill_value", "0x7fc00001"}}));
  EXPECT_EQ(load_le<uint32_t>(bits->fill), 0x7fc00001u);
  EXPECT_EQ(load_le<uint64_t>(fill("<u8", 1e19)->fill), 10000000000000000000ull);
  EXPECT_EQ(load_le<int64_t>(fill("<i8", -0x1p63)->fill), INT64_MIN);
  EXPECT_EQ(load_le<uint16_t>(fill("bfloat16", 1.0)->fill), 0x3f80);
  EXPECT_EQ(load_le<int64_t>(fill("<i8", -5)->fill), -5);
  EXPECT_EQ(load_le<uint64_t>(fill("<u8", 18446744073709551615ull)->fill), ~0ull);
  EXPECT_EQ(load_le<uint16_t>(fill(">u2", 1)->fill), 0x0100);
  EXPECT_EQ(fill("|b1", true)->fill[0], std::byte{1});
  EXPECT_EQ(load_le<float>(View(fill("<c8", {1.0, 2.0})->fill).subspan(4)), 2.0f);
  for (const auto& [dtype, value] : std::vector<std::pair<const char*, Json>>{{"|u1", 256},
                                                                              {"|u1", -1},
                                                                              {"|i1", -129},
                                                                              {"<i4", 1.5},
                                                                              {"<f4", "x"},
                                                                              {"<f4", ""},
                                                                              {"<f4", " 1"},
                                                                              {"|b1", 2},
                                                                              {"<i4", "NaN"},
                                                                              {"<u8", 0x1p64},
                                                                              {"<i8", 0x1p63},
                                                                              {"<u8", -1.0},
                                                                              {"<c8", 1.5}})
    EXPECT_EQ(fill(dtype, value).error().code, Code::kCorrupt) << dtype << value.dump();
}

TEST(ZarrMetadata, LiesAreRefused) {
  const Json changes[] = {{{"shape", {16}}},
                          {{"chunks", {0, 2}}},
                          {{"shape", {-1, 8}}},
                          {{"shape", {1ull << 40, 1ull << 40}}},
                          {{"chunks", {1ull << 55, 8}}},
                          {{"order", "X"}},
                          {{"compressor", {{"level", 1}}}},
                          {{"dimension_separator", "-"}},
                          {{"filters", 5}},
                          {{"filters", json_of(R"([{"id":"shuffle","elementsize":"4"}])")}},
                          {{"filters", json_of(R"([{"id":"shuffle","elementsize":null}])")}},
                          {{"shape", "16"}}};
  for (const Json& change : changes)
    EXPECT_EQ(parse_zarr2_array(zarr2(change)).error().code, Code::kCorrupt) << change.dump();
  EXPECT_EQ(parse_zarr2_array(zarr2({{"zarr_format", 3}})).error().code, Code::kUnsupported);
  EXPECT_EQ(parse_zarr2_array(zarr2({{"compressor", {{"id", "lzma"}}}})).error().code, Code::kUnsupported);
  EXPECT_EQ(parse_zarr2_array("[]").error().code, Code::kCorrupt);
  EXPECT_EQ(parse_zarr2_array(zarr2({{"dtype", "|f4"}})).error().code, Code::kUnsupported);
  Json unfilled = json_of(zarr2());
  unfilled.erase("fill_value");
  EXPECT_EQ(parse_zarr2_array(unfilled.dump()).error().code, Code::kCorrupt);
  auto raw = json_of(R"(["bytes"])");
  EXPECT_EQ(parse_zarr3_array(zarr3(raw, {{"fill_value", nullptr}})).error().code, Code::kCorrupt);
  EXPECT_EQ(parse_zarr3_array(zarr3(raw, {{"extra", 1}})).error().code, Code::kUnsupported);
  EXPECT_EQ(parse_zarr3_array(zarr3(raw, {{"extra", {{"must_understand", true}}}})).error().found, "\"extra\"");
  EXPECT_TRUE(
      parse_zarr3_array(zarr3(raw, {{"extra", {{"must_understand", false}}}, {"attributes", {{"a", 1}}}})).ok());
  EXPECT_TRUE(parse_zarr2_array(zarr2({{"shape", {0}}, {"chunks", {0}}})).ok());
  for (
      const char* codecs :
      {"[]", R"(["zstd","bytes"])", R"(["bytes","bytes"])",
       R"([{"name":"transpose","configuration":{"order":[0,0]}},"bytes"])",
       R"([{"name":"bytes","configuration":{"endian":"middle"}}])",
       R"([{"name":"bytes","configuration":{"endian":null}}])",
       R"([{"name":"sharding_indexed","configuration":{"chunk_shape":[3,2],"codecs":["bytes"],"index_codecs":["bytes"]}}])"})
    EXPECT_EQ(parse_zarr3_array(zarr3(json_of(codecs))).error().code, Code::kCorrupt) << codecs;
  EXPECT_EQ(parse_zarr3_array(zarr3(json_of(R"(["bytes"])"), {{"node_type", "group"}})).error().message, kZarrNoArray);
}

TEST(ZarrMetadata, WritesWhatItReads) {
  std::vector<int64_t> shape = {16, 8}, chunk = {8, 2};
  for (bool three : {false, true})
    for (bool zstd : {false, true})
      for (const auto& row : dtype_table()) {
        auto name = zarr_type_name(row.dtype, three);
        if (name.empty()) continue;
        auto text = zarr_array_text(shape, chunk, name, {three, zstd, 3});
        auto array = (three ? parse_zarr3_array : parse_zarr2_array)(text);
        ASSERT_TRUE(array.ok()) << text << array.error().text();
        EXPECT_EQ(array->dtype, row.dtype);
        EXPECT_EQ(array->chain.size(), size_t{zstd} + three);
      }
  // Byte for byte what TensorStore writes for Orbax.
  EXPECT_EQ(
      zarr_array_text(shape, chunk, "<f4", {false, true, 1}),
      R"({"chunks":[8,2],"compressor":{"id":"zstd","level":1},"dimension_separator":".","dtype":"<f4","fill_value":null,"filters":null,"order":"C","shape":[16,8],"zarr_format":2})");
}

TEST(ZarrValues, ADatabaseOfMoreKeysThanFitIsRefused) {
  OcdbtConfig config;
  config.max_node_bytes = 1000;
  OcdbtTreeBuilder builder(config, {"", "d/n"});
  for (int i = 1000; i < 3000; ++i) ASSERT_TRUE(builder.add(std::to_string(i) + "/.zarray", Bytes(20)).ok());
  auto version = *builder.finish();
  version.generation = 1;
  auto store = open_memory_store();
  auto transaction = *store->begin("");
  ASSERT_TRUE(write_object(*transaction, "d/n", builder.nodes()).ok());
  auto manifest = *make_ocdbt_manifest(config, version, {"", "d/n"});
  ASSERT_TRUE(write_object(*transaction, "manifest.ocdbt", manifest).ok());
  ASSERT_TRUE(transaction->commit({{"d/n", "manifest.ocdbt"}}).ok());
  EXPECT_TRUE(zarr_values_in_ocdbt(*store, "", MiB).ok());
  auto refused = zarr_values_in_ocdbt(*store, "", 100 * KiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().found, HasSubstr("keys and more"));
}

/// An array in a memory store as a catalogue.
struct Built {
  std::unique_ptr<Store> store = open_memory_store();
  Result<Catalog> build(const ZarrArray& array, const std::map<std::string, Bytes>& files, bool fill_missing) {
    auto transaction = *store->begin("");
    Publication publication;
    for (const auto& [key, bytes] : files) {
      EXPECT_TRUE(write_object(*transaction, key, bytes).ok());
      publication.keys.push_back(key);
    }
    EXPECT_TRUE(transaction->commit(publication).ok());
    CatalogBuilder builder;
    ZarrCatalog::Limits limits;
    limits.max_pieces = 100;
    ZarrCatalog zarr(*store, builder, limits);
    auto values = zarr_values_in_files(*store, "");
    SHARDWRIGHT_TRY(zarr.add(*values, "a", "a", array, fill_missing));
    return builder.build();
  }
};

TEST(ZarrChunks, MissingChunksByTheStatedRule) {
  auto array =
      *parse_zarr2_array(zarr2({{"shape", {3, 2}}, {"chunks", {2, 2}}, {"compressor", nullptr}, {"fill_value", 2.0}}));
  std::map<std::string, Bytes> one = {{"a/0.0", Bytes(16)}};
  auto filled = Built().build(array, one, true);
  ASSERT_TRUE(filled.ok()) << filled.error().text();
  auto pieces = filled->pieces(0);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[1].place.site, Place::kLiteral);
  EXPECT_EQ(load_le<float>(filled->literal(pieces[1].place)), 2.0f);
  EXPECT_THAT(pieces[1].strides, ElementsAre(0, 0));
  EXPECT_EQ(pieces[1].box, (Box{{2, 0}, {1, 2}}));
  auto refused = Built().build(array, one, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  EXPECT_THAT(refused.error().path, HasSubstr("a/1.0"));
  auto none = Built().build(array, {{"a/x", {}}}, true);
  EXPECT_EQ(none->piece_count(0), 1u);
}

TEST(ZarrChunks, PlacesWithoutChunksCostNothing) {
  auto array_of = [](std::vector<int64_t> shape, std::vector<int64_t> chunks, const char* separator = ".") {
    return *parse_zarr2_array(zarr2({{"shape", shape},
                                     {"chunks", chunks},
                                     {"compressor", nullptr},
                                     {"dtype", "|u1"},
                                     {"dimension_separator", separator}}));
  };
  std::vector<int64_t> two(24, 2), one(24, 1);
  auto none = Built().build(array_of(two, one), {{"a/x", {}}, {"b/0", {}}}, true);
  ASSERT_TRUE(none.ok()) << none.error().text();
  EXPECT_EQ(none->piece_count(0), 1u);
  // Two chunks of a million, the last one clipped; keys that are no chunks are passed over.
  std::map<std::string, Bytes> files = {{"a/3.5", Bytes(6)}, {"a/999.999", Bytes(6)}, {"a/1000.0", {}}, {"a/03.6", {}}};
  auto few = Built().build(array_of({1999, 3000}, {2, 3}), files, true);
  ASSERT_TRUE(few.ok()) << few.error().text();
  uint64_t elements = 0;
  for (const auto& piece : few->pieces(0)) elements += piece.box.elements();
  EXPECT_EQ(elements, 1999u * 3000);
  ASSERT_EQ(few->piece_count(0), 7u);  // two boxes before the first chunk, three between them
  EXPECT_EQ(few->pieces(0)[2].box, (Box{{6, 15}, {2, 3}}));
  EXPECT_EQ(few->pieces(0)[6].box, (Box{{1998, 2997}, {1, 3}}));
  EXPECT_EQ(few->pieces(0)[6].place.site, Place::kExtent);
  // In directories a link could hide what is there: refused instead of taken for missing.
  auto nested = Built().build(array_of({2000, 3000}, {2, 3}, "/"), {{"a/3/5", Bytes(6)}}, true);
  ASSERT_FALSE(nested.ok());
  EXPECT_THAT(nested.error().found, HasSubstr("1,000,000"));
}

TEST(ZarrChunks, EdgesAndLengths) {
  auto array =
      *parse_zarr2_array(zarr2({{"shape", {3, 3}}, {"chunks", {2, 2}}, {"compressor", nullptr}, {"dtype", "|u1"}}));
  std::map<std::string, Bytes> files;
  for (const char* key : {"a/0.0", "a/0.1", "a/1.0", "a/1.1"}) files[key] = Bytes(4);
  auto catalog = Built().build(array, files, false);
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  auto corner = catalog->pieces(0)[3];
  EXPECT_EQ(corner.box, (Box{{2, 2}, {1, 1}}));
  EXPECT_EQ(corner.place.length, 1u);
  files["a/1.1"].pop_back();
  EXPECT_EQ(Built().build(array, files, false).error().code, Code::kCorrupt);
  auto huge = *parse_zarr2_array(zarr2({{"shape", {1 << 20, 3}}, {"chunks", {1, 1}}}));
  EXPECT_EQ(Built().build(huge, files, false).error().code, Code::kUnsupported);
}

TEST(ZarrChunks, ShardsOfSeveralChunks) {
  auto text =
      R"([{"name":"sharding_indexed","configuration":{"chunk_shape":[2],"codecs":["bytes"],"index_codecs":[{"name":"bytes","configuration":{"endian":"little"}}]}}])";
  auto array = *parse_zarr3_array(
      zarr3(json_of(text), {{"shape", {3}},
                            {"data_type", "uint8"},
                            {"fill_value", 9},
                            {"chunk_grid", {{"name", "regular"}, {"configuration", {{"chunk_shape", {4}}}}}}}));
  auto shard = [](std::vector<std::pair<uint64_t, uint64_t>> index) {
    Bytes bytes = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    for (auto [offset, length] : index) append_le(bytes, offset), append_le(bytes, length);
    return bytes;
  };
  auto catalog = Built().build(array, {{"a/c/0", shard({{2, 2}, {0, 2}})}}, true);
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  EXPECT_EQ(catalog->pieces(0)[0].place.offset, 2u);
  EXPECT_EQ(catalog->pieces(0)[1].place.length, 1u);  // the second is clipped
  auto missing = Built().build(array, {{"a/c/0", shard({{~0ull, ~0ull}, {0, 2}})}}, true);
  EXPECT_EQ(missing->pieces(0)[0].place.site, Place::kLiteral);
  EXPECT_EQ(Built().build(array, {{"a/c/0", shard({{~0ull, ~0ull}, {0, 2}})}}, false).error().code, Code::kNotFound);
  EXPECT_EQ(Built().build(array, {{"a/c/0", shard({{35, 2}, {0, 2}})}}, true).error().code, Code::kCorrupt);
  EXPECT_EQ(Built().build(array, {{"a/c/0", shard({{0, 3}, {0, 2}})}}, true).error().code, Code::kCorrupt);
  EXPECT_EQ(Built().build(array, {{"a/c/0", Bytes(31)}}, true).error().code, Code::kCorrupt);
}

/// As a codec where all must be stored, by its index where chunks may be missing, or lie anywhere in the shard.
TEST(ZarrChunks, ShardsOfOneChunk) {
  auto parsed = parse_zarr3_array(zarr3(
      json_of(
          R"([{"name":"sharding_indexed","configuration":{"chunk_shape":[4],"codecs":[{"name":"bytes"}],"index_codecs":[)"
          R"({"name":"bytes","configuration":{"endian":"little"}},{"name":"crc32c"}]}}])"),
      {{"shape", {4}},
       {"data_type", "uint8"},
       {"fill_value", 9},
       {"chunk_grid", {{"name", "regular"}, {"configuration", {{"chunk_shape", {4}}}}}}}));
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  const auto& array = *parsed;
  auto shard = [](size_t held, uint64_t offset, uint64_t length) {
    Bytes bytes(held), index;
    append_le(index, offset), append_le(index, length), append_le(index, crc32c(index));
    bytes.insert(bytes.end(), index.begin(), index.end());
    return bytes;
  };
  auto gap = Built().build(array, {{"a/c/0", shard(10, 4, 4)}}, true);
  ASSERT_TRUE(gap.ok()) << gap.error().text();
  EXPECT_EQ(gap->pieces(0)[0].place.offset, 4u);
  EXPECT_TRUE(gap->encoding(gap->pieces(0)[0].encoding).chain.empty());
  auto missing = Built().build(array, {{"a/c/0", shard(0, ~0ull, ~0ull)}}, true);
  EXPECT_EQ(missing->pieces(0)[0].place.site, Place::kLiteral);
  auto whole = Built().build(array, {{"a/c/0", shard(4, 0, 4)}}, false);
  EXPECT_EQ(whole->encoding(whole->pieces(0)[0].encoding).chain.size(), 1u);
  auto broken = shard(4, 0, 4);
  broken.back() ^= std::byte{1};
  auto sum = Built().build(array, {{"a/c/0", broken}}, true);
  ASSERT_FALSE(sum.ok());
  EXPECT_THAT(sum.error().path, HasSubstr("a/c/0"));
  EXPECT_EQ(sum.error().offset, 4u);
}

}  // namespace
}  // namespace shardwright
