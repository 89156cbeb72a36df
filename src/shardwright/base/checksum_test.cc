#include "shardwright/base/checksum.h"

#include <gtest/gtest.h>
#include <xxhash.h>
#include <zlib.h>

#include <numeric>
#include <random>

namespace shardwright {
namespace {

Bytes random_bytes(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// The definition, bit by bit.
uint32_t crc32c_by_definition(View bytes) {
  uint32_t crc = ~0u;
  for (std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

TEST(Crc32c, VectorsOfRfc3720) {
  Bytes up(32), down(32), zeros(32), ones(32, std::byte{0xff});
  for (size_t i = 0; i < 32; ++i) up[i] = down[31 - i] = static_cast<std::byte>(i);
  Bytes read_command(48);
  read_command[0] = std::byte{0x01};
  read_command[1] = std::byte{0xc0};
  read_command[16] = std::byte{0x14};
  read_command[22] = std::byte{0x04};
  read_command[27] = std::byte{0x14};
  read_command[31] = std::byte{0x18};
  read_command[32] = std::byte{0x28};
  read_command[40] = std::byte{0x02};
  for (auto crc :
       {+[](View bytes) { return crc32c(bytes); }, +[](View bytes) { return detail::crc32c_by_table(bytes, 0); }}) {
    EXPECT_EQ(crc(zeros), 0x8a9136aau);
    EXPECT_EQ(crc(ones), 0x62a8ab43u);
    EXPECT_EQ(crc(up), 0x46dd794eu);
    EXPECT_EQ(crc(down), 0x113fdb5cu);
    EXPECT_EQ(crc(read_command), 0xd9963a56u);
    EXPECT_EQ(crc(view_of("123456789")), 0xe3069283u);
    EXPECT_EQ(crc({}), 0u);
  }
}

TEST(Crc32c, OfZerosAndAfterThem) {
  for (size_t count : {0, 1, 7, 255, 100'000}) {
    Bytes bytes = bytes_of("before"), zeros(count);
    bytes.resize(bytes.size() + count);
    EXPECT_EQ(crc32c_of_zeros(count), crc32c_by_definition(zeros)) << count;
    EXPECT_EQ(Crc32cZeros(count).after(crc32c(view_of("before"))), crc32c_by_definition(bytes)) << count;
  }
}

TEST(Crc32c, EveryPathEqualsTheDefinition) {
  auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  Bytes bytes = random_bytes(random, 100'000);
  // Sizes around the block sizes of the three streams (3 * 256, 3 * 8192), at any alignment.
  for (size_t size : {0, 1, 7, 8, 9, 63, 767, 768, 769, 1535, 1537, 24'575, 24'576, 24'577, 49'153, 90'001}) {
    size_t start = random() % 17;
    View part = View(bytes).subspan(start, size);
    ASSERT_EQ(crc32c(part), crc32c_by_definition(part)) << size << " at " << start << " seed " << seed;
    ASSERT_EQ(detail::crc32c_by_table(part, 0), crc32c_by_definition(part)) << size << " seed " << seed;
  }
}

TEST(Crc32c, ContinuesAndCombinesAtAnyCut) {
  auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    Bytes bytes = random_bytes(random, random() % 60'000);
    size_t cut = random() % (bytes.size() + 1);
    View a = View(bytes).first(cut), b = View(bytes).subspan(cut);
    ASSERT_EQ(crc32c(b, crc32c(a)), crc32c(bytes)) << "seed " << seed;
    ASSERT_EQ(crc32c_combine(crc32c(a), crc32c(b), b.size()), crc32c(bytes)) << "seed " << seed;
    ASSERT_EQ(crc32(b, crc32(a)), crc32(bytes)) << "seed " << seed;
    ASSERT_EQ(crc32_combine(crc32(a), crc32(b), b.size()), crc32(bytes)) << "seed " << seed;
  }
}

TEST(Crc32c, CombinesLengthsNoTestCanHold) {
  // (A + n zeros) + m zeros, from the parts: the order of joining must not matter.
  const uint64_t n = 810'000'000'123, m = 3'000'000'007;
  auto zeros_crc = [](uint64_t length) {  // by doubling, from one zero byte
    uint32_t result = 0, power = crc32c(bytes_of(std::string(1, '\0')));
    for (uint64_t size = 1; length != 0; length >>= 1, size *= 2) {
      if (length & 1) result = crc32c_combine(result, power, size);
      power = crc32c_combine(power, power, size);
    }
    return result;
  };
  EXPECT_EQ(zeros_crc(100'000), crc32c(Bytes(100'000)));
  uint32_t a = crc32c(view_of("abc"));
  uint32_t left = crc32c_combine(crc32c_combine(a, zeros_crc(n), n), zeros_crc(m), m);
  uint32_t right = crc32c_combine(a, zeros_crc(n + m), n + m);
  EXPECT_EQ(left, right);
}

TEST(Crc32, IsThatOfZip) {
  EXPECT_EQ(crc32(view_of("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32({}, 0x12345678), 0x12345678u);
  EXPECT_EQ(crc32({}), 0u);
}

TEST(Xxh3, KnownValues) {
  // From xxHash's own command: `printf '' | xxhsum -H2`, and the same of "abc".
  EXPECT_EQ(xxh3_128({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_128(view_of("abc")).hex(), "06b05ab6733a618578af5f94892f3950");
}

/// As checksum.h defines it, straight from whole segments and the library's plain functions.
Hash128 content_hash_by_definition(View bytes) {
  auto hash = [](View part) {
    XXH128_canonical_t raw;
    XXH128_canonicalFromHash(&raw, XXH3_128bits(part.data(), part.size()));
    Hash128 out;
    std::memcpy(out.bytes.data(), raw.digest, 16);
    return out;
  };
  Bytes list;
  size_t at = 0;
  do {
    View segment = bytes.subspan(at, std::min<size_t>(64 << 20, bytes.size() - at));
    auto segment_hash = hash(segment);
    list.insert(list.end(), segment_hash.bytes.begin(), segment_hash.bytes.end());
    at += segment.size();
  } while (at < bytes.size());
  return hash(list);
}

TEST(ContentHash, EqualsItsDefinitionHoweverItIsCut) {
  auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  const size_t segment = ContentHash::kSegmentBytes;
  ASSERT_EQ(segment, 67'108'864u);
  Bytes bytes(2 * segment + 12'345);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    uint64_t word = random();
    std::memcpy(&bytes[i], &word, 8);
  }
  ContentHash hash;  // used again and again: finish() must reset
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{1000}, segment - 1, segment, segment + 1, 2 * segment, bytes.size()}) {
    View whole = View(bytes).first(size);
    Hash128 expected = content_hash_by_definition(whole);
    hash.update(whole);
    ASSERT_EQ(hash.finish(), expected) << size << " seed " << seed;
    for (size_t at = 0; at < size;) {
      size_t part = std::min<size_t>(size - at, random() % (size / 5 + 2));
      hash.update(whole.subspan(at, part));
      at += part;
    }
    ASSERT_EQ(hash.finish(), expected) << size << " in parts, seed " << seed;
  }
}

TEST(ContentHash, MovesWithItsState) {
  ContentHash a;
  a.update(view_of("ab"));
  ContentHash b(std::move(a));
  b.update(view_of("c"));
  ContentHash c;
  c = std::move(b);
  EXPECT_EQ(c.finish(), content_hash_by_definition(view_of("abc")));
}

}  // namespace
}  // namespace shardwright
