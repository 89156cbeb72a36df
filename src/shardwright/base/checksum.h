/// Checksums: CRC-32C of stored bytes (combinable), CRC-32 for zip, XXH3-128 for content.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "shardwright/base/bytes.h"

namespace shardwright {

/// CRC-32C (Castagnoli) of `bytes` after a prefix whose crc is `crc` (0 for none). Hardware where present, else a table.
uint32_t crc32c(View bytes, uint32_t crc = 0);
/// crc of A followed by B, from the crcs of each and the length of B in bytes. O(log length).
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);
/// What that many zero bytes do to the CRC-32C of what is before them.
class Crc32cZeros {
 public:
  explicit Crc32cZeros(uint64_t count);
  uint32_t after(uint32_t crc) const;

 private:
  uint32_t power_;
};
/// CRC-32C of that many zero bytes.
inline uint32_t crc32c_of_zeros(uint64_t count) { return Crc32cZeros(count).after(0); }
namespace detail {
uint32_t crc32c_by_table(View bytes, uint32_t crc);  ///< what crc32c does without the instruction
}
/// zlib's CRC-32, as zip has it.
uint32_t crc32(View bytes, uint32_t crc = 0);
uint32_t crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);
/// CRC-32 of that many zero bytes. O(log count) combinations.
uint32_t crc32_of_zeros(uint64_t count);

/// XXH3-128, canonical (big-endian) bytes, as 32 hex digits by hex().
struct Hash128 {
  std::array<std::byte, 16> bytes{};
  std::string hex() const;
  bool operator==(const Hash128&) const = default;
};
Hash128 xxh3_128(View bytes);

/// Content hash of one tensor: its logical values, C order, little-endian, as one byte string, cut into segments of 64 MiB;
/// XXH3-128 of each, then XXH3-128 of the concatenated canonical segment hashes. A tensor of at most one segment (also an empty
/// one) hashes the same way: one segment hash, hashed again. Same in every format and sharding. The segment size is in every hash
/// ever printed: never change it.
class ContentHash {
 public:
  static constexpr uint64_t kSegmentBytes = 64 * MiB;
  ContentHash();
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  void update(View bytes);  ///< the next bytes, cut anywhere
  Hash128 finish();         ///< resets to empty

 private:
  struct State;
  State* state_;
};

}  // namespace shardwright
