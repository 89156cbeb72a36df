#include "shardwright/base/checksum.h"

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same functions, for the widest vectors this processor has
#endif
#include <zlib.h>

#include <algorithm>
#include <utility>

namespace shardwright {
namespace {

Hash128 canonical(const XXH128_hash_t& hash) {
  XXH128_canonical_t raw;
  XXH128_canonicalFromHash(&raw, hash);
  Hash128 out;
  std::memcpy(out.bytes.data(), raw.digest, out.bytes.size());
  return out;
}

/// XXH3's own state: 64-byte aligned, made by its allocator.
class Xxh3 {
 public:
  Xxh3() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    reset();
  }
  ~Xxh3() { XXH3_freeState(state_); }
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void reset() { XXH3_128bits_reset(state_); }
  void update(View bytes) { XXH3_128bits_update(state_, bytes.data(), bytes.size()); }
  Hash128 digest() const { return canonical(XXH3_128bits_digest(state_)); }

 private:
  XXH3_state_t* state_;
};

}  // namespace

uint32_t crc32(View bytes, uint32_t crc) {
  // zlib answers 0 for a null buffer, whatever the crc so far.
  if (bytes.empty()) return crc;
  return static_cast<uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

uint32_t crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b) {
  return static_cast<uint32_t>(::crc32_combine(crc_a, crc_b, static_cast<z_off_t>(length_b)));
}

std::string Hash128::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (std::byte byte : bytes) {
    out += kDigits[static_cast<unsigned>(byte) >> 4];
    out += kDigits[static_cast<unsigned>(byte) & 15];
  }
  return out;
}

Hash128 xxh3_128(View bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

uint32_t crc32_of_zeros(uint64_t count) {
  std::byte zero{};
  uint32_t crc = 0, power = crc32({&zero, 1});
  for (uint64_t length = 1; count > 0; count >>= 1, length *= 2) {
    if ((count & 1) != 0) crc = crc32_combine(crc, power, length);
    power = crc32_combine(power, power, length);
  }
  return crc;
}

struct ContentHash::State {
  Xxh3 segment, segments;
  uint64_t filled = 0;  ///< bytes in `segment`
  bool any = false;     ///< a segment was closed

  void close_segment() {
    segments.update(segment.digest().bytes);
    segment.reset();
    filled = 0;
    any = true;
  }
};

ContentHash::ContentHash() : state_(new State) {}
ContentHash::~ContentHash() { delete state_; }
ContentHash::ContentHash(ContentHash&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
ContentHash& ContentHash::operator=(ContentHash&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void ContentHash::update(View bytes) {
  while (!bytes.empty()) {
    View part = bytes.first(std::min<uint64_t>(bytes.size(), kSegmentBytes - state_->filled));
    state_->segment.update(part);
    state_->filled += part.size();
    if (state_->filled == kSegmentBytes) state_->close_segment();
    bytes = bytes.subspan(part.size());
  }
}

Hash128 ContentHash::finish() {
  if (state_->filled > 0 || !state_->any) state_->close_segment();
  Hash128 hash = state_->segments.digest();
  state_->segments.reset();
  state_->any = false;
  return hash;
}

}  // namespace shardwright
