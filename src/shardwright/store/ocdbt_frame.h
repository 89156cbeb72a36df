/// What every piece of OCDBT metadata is wrapped in, and the cursor that reads what is inside.
#pragma once

#include <string>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright::detail {

/// First bytes, big-endian. On disk: never renumber.
enum class OcdbtMagic : uint32_t { kManifest = 0x0cdb3a2a, kVersionNode = 0x0cdb1234, kNode = 0x0cdb20de };
inline constexpr uint64_t kOcdbtMissing = ~uint64_t{0};

/// The body of a frame, decoded: magic, length, version and CRC-32C are checked. At most max_bytes, and no more than real metadata shrinks to
/// the bytes that are there. Errors: kCorrupt, kUnsupported, kResourceExhausted with the numbers.
Result<Bytes> open_ocdbt_frame(View frame, OcdbtMagic magic, uint64_t max_bytes);
/// zstd_level: none = not compressed.
Result<Bytes> make_ocdbt_frame(OcdbtMagic magic, View body, const int32_t* zstd_level);

void append_varint(Bytes& out, uint64_t value);

/// Reads a body from front to back. The first thing that does not fit is kept as an error; after it everything reads as zero.
/// max_bytes: what the body and all that is made of it may take in memory, for counts in a small body can claim much.
class OcdbtCursor {
 public:
  explicit OcdbtCursor(View body, uint64_t max_bytes = kUnknown) : body_(body), max_bytes_(max_bytes) {
    charge(body.size());
  }
  /// Before `bytes` of memory are taken; refuses past max_bytes, then ok() is false.
  void charge(uint64_t bytes);
  View raw(uint64_t count);
  uint8_t byte();
  uint64_t varint();
  /// `count` columns entries of at least one byte each, so that no count is larger than what is left.
  std::vector<uint64_t> varints(uint64_t count);
  std::vector<uint64_t> numbers(uint64_t count);  ///< of 64 bits, little-endian
  /// A count of things that take at least `least` bytes each.
  uint64_t count(uint64_t least);
  size_t position() const { return at_; }
  void refuse(std::string what);
  bool ok() const { return error_.empty(); }
  /// The error, or one for bytes that are left.
  Status finish();
  Status status() const;

 private:
  View body_;
  size_t at_ = 0;
  std::string error_;
  size_t error_at_ = 0;
  uint64_t max_bytes_, taken_ = 0;
  bool exhausted_ = false;
};

}  // namespace shardwright::detail
