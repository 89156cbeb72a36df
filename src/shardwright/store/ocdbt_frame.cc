#include "shardwright/store/ocdbt_frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/checksum.h"
#include "shardwright/base/text.h"
#include "shardwright/base/zstd.h"

namespace shardwright::detail {
namespace {

constexpr size_t kHeadBytes = 12, kSumBytes = 4, kLeastFrame = 16;
/// Trees of 100,000 equal arrays, whose values lie in the nodes, shrink to a 500th at most; a frame of zeros to a 30,000th.
constexpr uint64_t kMostShrunk = 2048, kAlwaysDecoded = 16 * MiB;

uint32_t load_be32(View bytes) { return __builtin_bswap32(load_le<uint32_t>(bytes)); }

const char* name_of(OcdbtMagic magic) {
  switch (magic) {
    case OcdbtMagic::kManifest: return "OCDBT manifest";
    case OcdbtMagic::kVersionNode: return "OCDBT version node";
    case OcdbtMagic::kNode: return "OCDBT node";
  }
  return "";
}

}  // namespace

Result<Bytes> open_ocdbt_frame(View frame, OcdbtMagic magic, uint64_t max_bytes) {
  auto corrupt = [&](std::string what) { return fail(Code::kCorrupt, fmt::format("{}: {}", name_of(magic), what)); };
  if (frame.size() < kLeastFrame)
    return corrupt("is shorter than any").with_found(fmt::format("{} bytes", frame.size()));
  if (auto found = load_be32(frame); found != static_cast<uint32_t>(magic))
    return corrupt("does not begin as one")
        .with_found(fmt::format("{:08x}", found))
        .with_expected(fmt::format("{:08x}", static_cast<uint32_t>(magic)));
  if (auto length = load_le<uint64_t>(frame.subspan(4)); length != frame.size())
    return corrupt("has another length than it says")
        .with_found(fmt::format("{} bytes", frame.size()))
        .with_expected(fmt::format("{} bytes", length));
  View sum = frame.last(kSumBytes);
  frame = frame.first(frame.size() - kSumBytes);
  if (auto computed = crc32c(frame); computed != load_le<uint32_t>(sum))
    return corrupt("CRC-32C is wrong")
        .with_found(fmt::format("{:08x}", load_le<uint32_t>(sum)))
        .with_expected(fmt::format("{:08x}", computed));
  OcdbtCursor cursor(frame.subspan(kHeadBytes));
  auto version = cursor.varint(), compression = cursor.varint();
  if (!cursor.ok()) return corrupt("ends early");
  if (version != 0 || compression > 1)
    return fail(Code::kUnsupported, fmt::format("{}: {} is not known here", name_of(magic),
                                                version != 0 ? "its version" : "its compression"))
        .with_found(std::to_string(version != 0 ? version : compression));
  View body = frame.subspan(kHeadBytes + cursor.position());
  if (compression == 0) return Bytes(body.begin(), body.end());
  auto decoded = zstd_decompress(body, std::min(max_bytes, kAlwaysDecoded + kMostShrunk * frame.size()));
  if (!decoded.ok() && decoded.error().code == Code::kResourceExhausted)
    decoded.error().found = fmt::format("more, in {} bytes of the file", frame.size());
  if (!decoded.ok()) decoded.error().message = fmt::format("{}: {}", name_of(magic), decoded.error().message);
  return decoded;
}

Result<Bytes> make_ocdbt_frame(OcdbtMagic magic, View body, const int32_t* zstd_level) {
  Bytes packed;
  if (zstd_level != nullptr) {
    SHARDWRIGHT_ASSIGN(packed, zstd_compress(body, *zstd_level));
    body = packed;
  }
  Bytes out;
  out.reserve(kHeadBytes + 2 + body.size() + kSumBytes);
  append_le(out, __builtin_bswap32(static_cast<uint32_t>(magic)));
  append_le(out, uint64_t{kHeadBytes + 2 + body.size() + kSumBytes});
  append_varint(out, 0);
  append_varint(out, zstd_level != nullptr ? 1 : 0);
  out.insert(out.end(), body.begin(), body.end());
  append_le(out, crc32c(out));
  return out;
}

void append_varint(Bytes& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<std::byte>(value | 128));
  out.push_back(static_cast<std::byte>(value));
}

View OcdbtCursor::raw(uint64_t count) {
  if (count > body_.size() - at_) {
    refuse("it ends early");
    return {};
  }
  View out = body_.subspan(at_, count);
  at_ += count;
  return out;
}

uint8_t OcdbtCursor::byte() {
  View one = raw(1);
  return one.empty() ? uint8_t{0} : std::to_integer<uint8_t>(one[0]);
}

uint64_t OcdbtCursor::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70 && ok(); shift += 7) {
    uint8_t next = byte();
    if (shift == 63 && next > 1) break;
    value |= uint64_t{next & 127u} << shift;
    if (next < 128) return ok() ? value : 0;
  }
  refuse("a number does not fit 64 bits");
  return 0;
}

void OcdbtCursor::charge(uint64_t bytes) {
  taken_ = checked_add(taken_, bytes).value_or(kUnknown);
  if (!ok() || taken_ <= max_bytes_) return;
  refuse(fmt::format("what it holds takes more than the {} that metadata may take here", format_bytes(max_bytes_)));
  exhausted_ = true;
}

std::vector<uint64_t> OcdbtCursor::varints(uint64_t count) {
  if (count > body_.size() - at_) refuse("it ends early");
  if (ok()) charge(count * sizeof(uint64_t));
  std::vector<uint64_t> out(ok() ? count : 0);
  for (auto& value : out) value = varint();
  if (!ok()) out.clear();
  return out;
}

std::vector<uint64_t> OcdbtCursor::numbers(uint64_t count) {
  if (count > (body_.size() - at_) / 8) refuse("it ends early");
  if (ok()) charge(count * sizeof(uint64_t));
  std::vector<uint64_t> out(ok() ? count : 0);
  for (auto& value : out) value = load_le<uint64_t>(raw(8));
  return out;
}

uint64_t OcdbtCursor::count(uint64_t least) {
  uint64_t value = varint();
  if (ok() && value > (body_.size() - at_) / least) refuse("it says that it holds more than fits");
  return ok() ? value : 0;
}

void OcdbtCursor::refuse(std::string what) {
  if (!error_.empty()) return;
  error_ = std::move(what);
  error_at_ = at_;
}

Status OcdbtCursor::status() const {
  if (ok()) return {};
  return fail(exhausted_ ? Code::kResourceExhausted : Code::kCorrupt,
              fmt::format("{}, {} bytes into its body", error_, error_at_));
}

Status OcdbtCursor::finish() {
  if (ok() && at_ != body_.size()) refuse("bytes follow its end");
  return status();
}

}  // namespace shardwright::detail
