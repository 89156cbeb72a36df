#include "shardwright/codec/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

namespace shardwright {
namespace {

using testing::HasSubstr;
using Chain = std::vector<CodecSpec>;
using Random = std::mt19937_64;

/// Runs `codec` over `in` cut at random (all at once when `random` is null).
Result<Bytes> run(Codec& codec, View in, Random* random) {
  Bytes out;
  auto emit = [&](View made) -> Status {
    out.insert(out.end(), made.begin(), made.end());
    return {};
  };
  while (random != nullptr && (*random)() % 20 != 0) {
    size_t longest = (*random)() % 2 ? 9 : in.size() / 2;
    size_t part = std::min<size_t>(in.size(), (*random)() % (longest + 1));
    SHARDWRIGHT_TRY(codec.push(in.first(part), false, emit));
    in = in.subspan(part);
  }
  SHARDWRIGHT_TRY(codec.push(in, true, emit));
  return out;
}

Result<Bytes> encode(const Chain& chain, View data, Random* random = nullptr) {
  SHARDWRIGHT_ASSIGN(auto codec, make_encoder(chain, data.size()));
  return run(*codec, data, random);
}
Result<Bytes> decode(const Chain& chain, View data, uint64_t decoded_bytes, Random* random = nullptr) {
  SHARDWRIGHT_ASSIGN(auto codec, make_decoder(chain, decoded_bytes));
  return run(*codec, data, random);
}

/// The same into memory that is offered. What is emitted then are views of it, one behind the other.
Result<Bytes> decode_in_place(const Chain& chain, View data, uint64_t decoded_bytes, Random* random = nullptr) {
  SHARDWRIGHT_ASSIGN(auto codec, make_decoder(chain, decoded_bytes));
  Bytes room(decoded_bytes + 1);
  bool taken = codec->decode_into(MutableView(room).first(decoded_bytes));
  Bytes out;
  auto emit = [&](View made) -> Status {
    if (taken) EXPECT_EQ(made.data(), room.data() + out.size());
    out.insert(out.end(), made.begin(), made.end());
    return {};
  };
  for (size_t at = 0; random != nullptr && at < data.size();) {
    size_t part = std::min<size_t>(data.size() - at, (*random)() % 900 + 1);
    SHARDWRIGHT_TRY(codec->push(data.subspan(at, part), false, emit));
    at += part;
    if (at == data.size()) data = {};
  }
  SHARDWRIGHT_TRY(codec->push(data, true, emit));
  EXPECT_EQ(room.back(), std::byte{0});
  return out;
}

/// Compressible, like the bytes of small floats, with some noise.
Bytes sample(Random& random, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i % 4 == 3 ? 0x3f : i % 4 == 2 ? random() % 4 : random());
  return bytes;
}

const std::vector<Chain>& chains() {
  static const std::vector<Chain> all = {
      {},
      {{"zlib", 1}},
      {{"zlib", 6}},
      {{"zlib", 9}},
      {{"gzip", 5}},
      {{"deflate", 7}},
      {{"shuffle", 1}},
      {{"shuffle", 4}},
      {{"shuffle", 7}},
      {{"fletcher32", 0}},
      {{"shuffle", 2}, {"zlib", 4}},
      {{"shuffle", 8}, {"zlib", 6}, {"fletcher32", 0}},
      {{"fletcher32", 0}, {"shuffle", 4}, {"gzip", 1}, {"zlib", 1}},
      {{"zstd", 1}},
      {{"zstd", 3}},
      {{"zstd", static_cast<uint64_t>(-5)}},
      {{"zstd", 19}, {"crc32c"}},
      {{"lz4"}},
      {{"blosc", BloscParameters{5, 1, 0, 4}.pack()}},
      {{"blosc", BloscParameters{9, 2, 5, 2}.pack()}},
      {{"crc32c"}, {"zstd", 1}},
      {{"zstd", 3}, {"sharding_indexed"}},
      {{"shuffle", 4}, {"zlib", 1}, {"sharding_indexed"}, {"crc32c"}},
  };
  return all;
}

std::string chain_text(const Chain& chain) {
  std::string text;
  for (const auto& spec : chain) text += spec.name + ":" + std::to_string(spec.parameter) + " ";
  return text;
}

TEST(Codec, ChainsInTheseTestsCoverTheTable) {
  for (const CodecRow& row : codec_table()) {
    // Fits chunks of one size only, or of some values only: they have tests of their own.
    bool used = row.name == "transpose" || row.name == "small_int";
    for (const auto& chain : chains())
      for (const auto& spec : chain) used = used || spec.name == row.name;
    EXPECT_TRUE(used) << row.name;
  }
}

TEST(Codec, ComesBackHoweverItIsCut) {
  auto seed = std::random_device()();
  Random random(seed);
  for (const Chain& chain : chains())
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(chain_text(chain) + "seed " + std::to_string(seed));
      Bytes data = sample(random, random() % (round % 5 == 0 ? 200'000 : 300));
      if (round % 4 == 0) data.assign(data.size(), std::byte{7});  // much output from little input
      auto whole = encode(chain, data);
      ASSERT_TRUE(whole.ok());
      ASSERT_LE(whole->size(), encoded_bound(chain, data.size()));
      auto cut = encode(chain, data, &random);
      ASSERT_TRUE(cut.ok());
      ASSERT_EQ(*cut, *whole);
      auto back = decode(chain, *whole, data.size());
      ASSERT_TRUE(back.ok()) << back.error().text();
      ASSERT_EQ(*back, data);
      back = decode(chain, *whole, data.size(), &random);
      ASSERT_TRUE(back.ok()) << back.error().text();
      ASSERT_EQ(*back, data);
      back = decode_in_place(chain, *whole, data.size(), round % 2 == 0 ? &random : nullptr);
      ASSERT_TRUE(back.ok()) << back.error().text();
      ASSERT_EQ(*back, data);
    }
}

TEST(Codec, ShortLongAndWronglySizedChunksAreCorrupt) {
  auto seed = std::random_device()();
  Random random(seed);
  for (const Chain& chain : chains()) {
    Bytes data = sample(random, 1 + random() % 200);
    Bytes whole = *encode(chain, data);
    for (size_t size = 0; size < whole.size(); ++size) {
      auto result = decode(chain, View(whole).first(size), data.size(), &random);
      ASSERT_FALSE(result.ok()) << chain_text(chain) << size << " of " << whole.size() << " seed " << seed;
      ASSERT_EQ(result.error().code, Code::kCorrupt);
      ASSERT_EQ(decode_in_place(chain, View(whole).first(size), data.size(), &random).error().code, Code::kCorrupt);
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_EQ(decode(chain, longer, data.size()).error().code, Code::kCorrupt) << chain_text(chain);
    EXPECT_EQ(decode(chain, longer, data.size(), &random).error().code, Code::kCorrupt) << chain_text(chain);
    EXPECT_EQ(decode(chain, whole, data.size() - 1).error().code, Code::kCorrupt) << chain_text(chain);
    EXPECT_EQ(decode_in_place(chain, whole, data.size() - 1).error().code, Code::kCorrupt) << chain_text(chain);
    EXPECT_EQ(decode_in_place(chain, whole, data.size() + 1).error().code, Code::kCorrupt) << chain_text(chain);
    EXPECT_EQ(decode(chain, whole, data.size() + 1).error().code, Code::kCorrupt) << chain_text(chain);
  }
}

TEST(Codec, ChecksumsSeeEveryFlippedBit) {
  auto seed = std::random_device()();
  Random random(seed);
  for (const Chain& chain : {Chain{{"zlib", 6}}, Chain{{"fletcher32", 0}}, Chain{{"crc32c"}},
                             Chain{{"zstd", 1}, {"crc32c"}}, Chain{{"shuffle", 4}, {"zlib", 1}, {"fletcher32", 0}}}) {
    Bytes data = sample(random, 120), whole = *encode(chain, data);
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
      Bytes bad = whole;
      bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      auto result = decode(chain, bad, data.size(), &random);
      ASSERT_FALSE(result.ok() && *result != data) << chain_text(chain) << "bit " << bit << " seed " << seed;
      // A flipped window size is refused as one before the sum is seen.
      if (!result.ok()) {
        ASSERT_TRUE(result.error().code == Code::kCorrupt || result.error().code == Code::kUnsupported);
      }
    }
  }
}

TEST(Codec, ABombIsCutOffAtTheSizeOfTheChunk) {
  Bytes zeros(8 << 20);
  Bytes bomb = *encode(Chain{{"zlib", 9}}, zeros);
  ASSERT_LT(bomb.size(), 20'000u);
  auto decoder = *make_decoder(Chain{{"zlib", 9}}, 1000);
  uint64_t emitted = 0;
  Status status = decoder->push(bomb, true, [&](View out) -> Status {
    emitted += out.size();
    return {};
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kCorrupt);
  EXPECT_LE(emitted, 1000u);
}

TEST(Codec, WindowsStaySmallWhateverTheChunk) {
  for (const char* name : {"zlib", "gzip", "deflate", "fletcher32"}) {
    Chain chain{{name, 6}};
    EXPECT_LT((*make_decoder(chain, 1ull << 50))->window_bytes(), MiB) << name;
    EXPECT_LT((*make_encoder(chain, 1ull << 50))->window_bytes(), MiB) << name;
  }
  // Nothing is taken before the first push: an absurd chunk only has an absurd window.
  EXPECT_EQ((*make_decoder(Chain{{"shuffle", 4}}, 1ull << 60))->window_bytes(), 1ull << 60);
}

TEST(Codec, ZstdHasTheWindowOfItsLevel) {
  // What is held does not grow with the chunk: 512 KiB windows at level 1, 2 MiB at 3, 8 MiB at 19.
  EXPECT_LT((*make_decoder(Chain{{"zstd", 1}}, 1ull << 50))->window_bytes(), 2 * MiB);
  EXPECT_LT((*make_decoder(Chain{{"zstd", 3}}, 1ull << 50))->window_bytes(), 4 * MiB);
  EXPECT_LT((*make_decoder(Chain{{"zstd", 19}}, 1ull << 50))->window_bytes(), 10 * MiB);
  EXPECT_LT((*make_encoder(Chain{{"zstd", 1}}, 1ull << 40))->window_bytes(), 4 * MiB);
  // A frame that wants more than its level has is refused with what it may have, not given the memory.
  Bytes zeros(32 * MiB), frame = *encode(Chain{{"zstd", 22}}, zeros);
  auto refused = decode(Chain{{"zstd", 1}}, frame, zeros.size());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_THAT(refused.error().expected, HasSubstr("524288"));
  EXPECT_TRUE(decode(Chain{{"zstd", 22}}, frame, zeros.size()).ok());
  EXPECT_EQ(decode_in_place(Chain{{"zstd", 1}}, frame, zeros.size()).error().code, Code::kUnsupported);
}

TEST(Codec, ZstdFramesInARowAreOneChunk) {
  Bytes a(1000, std::byte{1}), b(70'000, std::byte{2});
  Bytes frames = *encode(Chain{{"zstd", 1}}, a), second = *encode(Chain{{"zstd", 3}}, b);
  frames.insert(frames.end(), second.begin(), second.end());
  Bytes both = a;
  both.insert(both.end(), b.begin(), b.end());
  EXPECT_EQ(*decode(Chain{{"zstd", 3}}, frames, both.size()), both);
  EXPECT_EQ(*decode_in_place(Chain{{"zstd", 3}}, frames, both.size()), both);
}

TEST(Codec, TransposeTurnsDimensions) {
  // 2 x 3 x 2 of one byte; encoded dimension i is decoded dimension order[i].
  Bytes data(12);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  CodecSpec spec{"transpose", 1, {2, 3, 2, 2, 0, 1}};
  Bytes turned = *encode(Chain{spec}, data);
  for (size_t a = 0; a < 2; ++a)
    for (size_t b = 0; b < 3; ++b)
      for (size_t c = 0; c < 2; ++c) EXPECT_EQ(turned[(c * 2 + a) * 3 + b], data[(a * 3 + b) * 2 + c]);
  EXPECT_EQ(*decode(Chain{spec}, turned, data.size()), data);
  Random random(7);
  CodecSpec wide{"transpose", 8, {31, 5, 17, 2, 1, 0}};
  Bytes large = sample(random, 31 * 5 * 17 * 8);
  Chain chain{wide, {"zstd", 1}};
  EXPECT_EQ(*decode(chain, *encode(chain, large, &random), large.size(), &random), large);
  for (const auto& bad : {std::vector<uint64_t>{2, 3, 2, 0, 0, 1},
                          {2, 3, 2, 0, 1, 3},
                          {2, 3, 3, 0, 1, 2},
                          {12},
                          {1ull << 40, 1ull << 40, 0, 1}})
    EXPECT_EQ(make_decoder(Chain{{"transpose", 1, bad}}, 12).error().code, Code::kCorrupt);
}

/// TensorStore's int4: a value in the low bits, zero in the others, which do not count.
TEST(Codec, SmallIntegersKeepTheirSign) {
  auto bytes = [](std::initializer_list<int> values) {
    Bytes out;
    for (int value : values) out.push_back(static_cast<std::byte>(value));
    return out;
  };
  Chain int4 = {{"small_int", SmallInt{4, true}.pack()}}, uint2 = {{"small_int", SmallInt{2, false}.pack()}};
  EXPECT_EQ(*decode(int4, bytes({0x08, 0x0f, 0x00, 0x07, 0xf7, 0x18}), 6), bytes({-8, -1, 0, 7, 7, -8}));
  EXPECT_EQ(*encode(int4, bytes({-8, -1, 0, 7})), bytes({0x08, 0x0f, 0x00, 0x07}));
  EXPECT_EQ(*decode(uint2, bytes({0, 1, 2, 3, 0xfd}), 5), bytes({0, 1, 2, 3, 1}));
  Chain packed = {int4[0], {"zstd", 1}};
  Bytes many(300'000, std::byte{0xfe});
  EXPECT_EQ(*decode(packed, *encode(packed, many), many.size()), many);
  EXPECT_EQ(decode(int4, bytes({1, 2}), 3).error().code, Code::kCorrupt);
  EXPECT_EQ(make_decoder(Chain{{"small_int", 0}}, 1).error().code, Code::kCorrupt);
}

TEST(Codec, AShardOfOneChunkSaysWhereItIs) {
  Bytes data(100, std::byte{3}), shard = *encode(Chain{{"sharding_indexed"}}, data);
  ASSERT_EQ(shard.size(), 120u);
  EXPECT_EQ(load_le<uint64_t>(View(shard).subspan(100)), 0u);
  EXPECT_EQ(load_le<uint64_t>(View(shard).subspan(108)), 100u);
  Bytes index = shard_index_of_one(100);
  EXPECT_TRUE(std::equal(index.begin(), index.end(), shard.begin() + 100));
  Bytes elsewhere = shard_index_of_one(99);
  std::copy(elsewhere.begin(), elsewhere.end(), shard.begin() + 100);
  EXPECT_EQ(decode(Chain{{"sharding_indexed"}}, shard, 100).error().code, Code::kCorrupt);
}

TEST(Codec, AnErrorOfEmitEndsThePush) {
  for (const Chain& chain : chains()) {
    Bytes data(300'000, std::byte{1});
    Bytes whole = *encode(chain, data);
    int calls = 0;
    auto full = [&](View) -> Status {
      ++calls;
      return fail(Code::kResourceExhausted, "disk full");
    };
    EXPECT_EQ((*make_decoder(chain, data.size()))->push(whole, true, full).error().code, Code::kResourceExhausted);
    EXPECT_EQ((*make_encoder(chain, data.size()))->push(data, true, full).error().code, Code::kResourceExhausted);
    EXPECT_EQ(calls, 2) << chain_text(chain);
  }
}

TEST(Codec, RefusesWhatItCannotDo) {
  EXPECT_EQ(make_decoder(Chain{{"lzma", 0}}, 1).error().code, Code::kUnsupported);
  EXPECT_THAT(make_decoder(Chain{{"lzma", 0}}, 1).error().found, HasSubstr("lzma"));
  EXPECT_EQ(make_encoder(Chain{{"zlib", 0}}, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make_encoder(Chain{{"zlib", 10}}, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make_encoder(Chain{{"gzip", ~0ull}}, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make_encoder(Chain{{"zstd", 23}}, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make_encoder(Chain{{"blosc", 0}}, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make_decoder(Chain{{"lz4"}}, 3 * GiB).error().code, Code::kUnsupported);
  EXPECT_EQ(make_decoder(Chain{{"blosc"}}, 3 * GiB).error().code, Code::kUnsupported);
  EXPECT_EQ(make_decoder(Chain{{"zstd", 1}, {"lz4"}}, 1).error().code, Code::kUnsupported);
  EXPECT_EQ(make_decoder(Chain{{"shuffle", 0}}, 1).error().code, Code::kCorrupt);
  EXPECT_EQ(make_decoder(Chain{{"zlib", 1}, {"shuffle", 4}}, 1).error().code, Code::kUnsupported);
  EXPECT_EQ(encoded_bound(Chain{{"lzma", 0}}, 1), kUnknown);
  EXPECT_EQ(encoded_bound(Chain{{"zlib", 0}}, kUnknown - 1), kUnknown);
  EXPECT_EQ(encode(Chain{{"zlib", 1}}, {}).value().size(), 8u);
  auto encoder = *make_encoder(Chain{{"zlib", 1}}, 10);
  auto ignore = [](View) -> Status { return {}; };
  EXPECT_EQ(encoder->push(Bytes(11), false, ignore).error().code, Code::kInvalidArgument);
  encoder = *make_encoder(Chain{{"zlib", 1}}, 10);
  EXPECT_EQ(encoder->push(Bytes(9), true, ignore).error().code, Code::kInvalidArgument);
}

TEST(Zlib, BytesAreThoseOfItsOwnOneShotCall) {
  auto seed = std::random_device()();
  Random random(seed);
  for (int level = 1; level <= 9; ++level) {
    Bytes data = sample(random, 100'000 + random() % 50'000);
    Bytes expected(compressBound(data.size()));
    uLongf size = expected.size();
    ASSERT_EQ(compress2(reinterpret_cast<Bytef*>(expected.data()), &size, reinterpret_cast<const Bytef*>(data.data()),
                        data.size(), level),
              Z_OK);
    expected.resize(size);
    EXPECT_EQ(*encode(Chain{{"zlib", static_cast<uint64_t>(level)}}, data, &random), expected)
        << "level " << level << " seed " << seed;
  }
}

TEST(Zlib, BoundIsZlibsOwn) {
  for (uint64_t bytes : {0ull, 1ull, 4095ull, 4096ull, 1ull << 25, (1ull << 40) + 12345})
    EXPECT_EQ(encoded_bound(Chain{{"zlib", 6}}, bytes), compressBound(bytes));
  Random random(1);
  Bytes noise(200'000);
  for (auto& byte : noise) byte = static_cast<std::byte>(random());
  for (const char* name : {"zlib", "gzip", "deflate"})
    for (uint64_t level : {1, 6, 9})
      EXPECT_LE(encode(Chain{{name, level}}, noise)->size(), encoded_bound(Chain{{name, level}}, noise.size()));
}

TEST(Zlib, ReadsStoredBlocks) {  // level 0: others write it, we only read it
  Bytes data = bytes_of(std::string(200'000, 'x')), stored(data.size() + 1000);
  uLongf size = stored.size();
  ASSERT_EQ(compress2(reinterpret_cast<Bytef*>(stored.data()), &size, reinterpret_cast<const Bytef*>(data.data()),
                      data.size(), 0),
            Z_OK);
  EXPECT_EQ(*decode(Chain{{"zlib", 0}}, View(stored).first(size), data.size()), data);
}

TEST(Gzip, HasTheHeaderOfRfc1952) {
  Bytes whole = *encode(Chain{{"gzip", 6}}, view_of("hello"));
  ASSERT_GT(whole.size(), 18u);
  EXPECT_EQ(text_of(View(whole).first(8)), std::string_view("\x1f\x8b\x08\0\0\0\0\0", 8));  // no name, no time
  EXPECT_EQ(load_le<uint32_t>(View(whole).last(4)), 5u);
  EXPECT_EQ(decode(Chain{{"zlib", 6}}, whole, 5).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace shardwright
