#include "shardwright/engine/tensor_stream.h"

#include <gtest/gtest.h>

#include "shardwright/codec/codec.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using testing_support::pattern;
using testing_support::put;
using Shape = std::vector<int64_t>;

constexpr int64_t kRows = 4096, kColumns = 512;

/// A tensor of two MiB in zlib chunks of that many rows, each chunk an object's range.
Checkpoint chunked(const std::string& values, int64_t rows) {
  Checkpoint out;
  out.store = open_memory_store();
  std::string file;
  std::vector<Place> places;
  for (int64_t first = 0; first < kRows; first += rows) {
    CodecSpec chain[] = {{"zlib", 1}};
    auto encoder = *make_encoder(chain, static_cast<uint64_t>(rows * kColumns));
    uint64_t begin = file.size();
    auto part =
        std::string_view(values).substr(static_cast<size_t>(first * kColumns), static_cast<size_t>(rows * kColumns));
    EXPECT_OK(encoder->push(view_of(part), true, [&](View made) -> Status {
      file += text_of(made);
      return {};
    }));
    places.push_back({Place::kExtent, -1, 0, begin, file.size() - begin});
  }
  EXPECT_OK(put(*out.store, "", {{"file", file}}));
  CatalogBuilder builder;
  builder.add_object({"file", file.size()});
  auto encoding = builder.add_encoding({DType::kU8, false, {{"zlib", 1}}, static_cast<uint64_t>(rows * kColumns)});
  EXPECT_OK(builder.add_tensor("t", DType::kU8, Shape{kRows, kColumns}));
  int64_t first = 0;
  for (const Place& place : places) {
    EXPECT_OK(builder.add_piece({{{first, 0}, {rows, kColumns}}, place, encoding, {}}));
    first += rows;
  }
  out.catalog = *builder.build();
  return out;
}

PlanOptions small() {
  PlanOptions options;
  options.memory_bytes = MiB;
  options.threads = 1;
  return options;
}

Result<std::string> all_of(const Checkpoint& checkpoint) {
  TensorStream stream(checkpoint, 0, small());
  std::string out;
  while (true) {
    SHARDWRIGHT_ASSIGN(View slab, stream.next());
    if (slab.empty()) return out;
    EXPECT_LT(slab.size(), MiB);
    out += text_of(slab);
  }
}

/// However large the chunks are: what is larger than the budget is decoded once, not once for each slab.
TEST(TensorStream, EveryChunkIsReadOnce) {
  std::string values = pattern(kRows * kColumns);
  for (int64_t rows : {kRows, kRows / 2, kRows / 64}) {
    auto checkpoint = chunked(values, rows);
    uint64_t stored = **checkpoint.store->size("file"), before = checkpoint.store->bytes_read();
    auto read = all_of(checkpoint);
    ASSERT_OK(read);
    EXPECT_TRUE(*read == values) << rows;
    EXPECT_EQ(checkpoint.store->bytes_read() - before, stored) << rows;
  }
}

/// Chunks side by side: their rows are no slab. They are decoded together, row by row, where their decoders fit the budget; else again for each slab.
TEST(TensorStream, AGridOfChunksIsReadOnce) {
  constexpr int64_t kSide = 1024, kHalf = kSide / 2;
  std::string values = pattern(kSide * kSide), file;
  Checkpoint checkpoint;
  CatalogBuilder builder;
  builder.add_object({"file", kUnknown});
  auto encoding = builder.add_encoding({DType::kU8, false, {{"zlib", 1}}, kHalf * kHalf});
  EXPECT_OK(builder.add_tensor("t", DType::kU8, Shape{kSide, kSide}));
  for (int64_t row : {int64_t{0}, kHalf})
    for (int64_t column : {int64_t{0}, kHalf}) {
      Bytes chunk;
      for (int64_t i = 0; i < kHalf; ++i) {
        View line = view_of(values).subspan(static_cast<size_t>((row + i) * kSide + column), kHalf);
        chunk.insert(chunk.end(), line.begin(), line.end());
      }
      auto encoder = *make_encoder(std::vector<CodecSpec>{{"zlib", 1}}, chunk.size());
      uint64_t begin = file.size();
      EXPECT_OK(encoder->push(chunk, true, [&](View made) -> Status {
        file += text_of(made);
        return {};
      }));
      EXPECT_OK(builder.add_piece(
          {{{row, column}, {kHalf, kHalf}}, {Place::kExtent, -1, 0, begin, file.size() - begin}, encoding, {}}));
    }
  checkpoint.store = open_memory_store();
  EXPECT_OK(put(*checkpoint.store, "", {{"file", file}}));
  checkpoint.catalog = *builder.build();
  for (uint64_t memory : {4 * MiB, MiB}) {
    PlanOptions options = small();
    options.part_bytes = 64 * KiB;
    options.memory_bytes = memory;
    uint64_t before = checkpoint.store->bytes_read();
    TensorStream stream(checkpoint, 0, options);
    std::string out;
    for (View slab = *stream.next(); !slab.empty(); slab = *stream.next()) out += text_of(slab);
    EXPECT_TRUE(out == values);
    EXPECT_EQ(checkpoint.store->bytes_read() - before, file.size()) << memory;
  }
  file[file.size() - 2] ^= 1;  // the checksum of the last chunk
  checkpoint.store = open_memory_store();
  EXPECT_OK(put(*checkpoint.store, "", {{"file", file}}));
  PlanOptions options = small();
  options.part_bytes = 64 * KiB;
  TensorStream damaged(checkpoint, 0, options);
  auto slab = damaged.next();
  while (slab.ok() && !slab->empty()) slab = damaged.next();
  EXPECT_CODE(slab, Code::kCorrupt);
  EXPECT_EQ(slab.error().tensor, checkpoint.catalog.spec(0).name);
  TensorStream left(checkpoint, 0, options);
  EXPECT_OK(left.next());
}

TEST(TensorStream, MayBeLeftInTheMiddle) {
  auto checkpoint = chunked(pattern(kRows * kColumns), kRows);
  for (int taken : {0, 1, 2}) {
    TensorStream stream(checkpoint, 0, small());
    for (int i = 0; i < taken; ++i) ASSERT_OK(stream.next());
  }
}

TEST(TensorStream, ErrorsOfReadingComeOut) {
  auto checkpoint = chunked(pattern(kRows * kColumns), kRows / 2);
  std::string file = testing_support::text_at(*checkpoint.store, "file");
  file[file.size() - 2] ^= 1;  // the checksum of the last chunk
  auto damaged = open_memory_store();
  ASSERT_OK(put(*damaged, "", {{"file", file}}));
  checkpoint.store = std::move(damaged);
  EXPECT_CODE(all_of(checkpoint), Code::kCorrupt);
}

}  // namespace
}  // namespace shardwright
