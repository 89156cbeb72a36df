#include "shardwright/format/zip_member.h"

#include <fmt/format.h>

#include "shardwright/base/checksum.h"
#include "shardwright/codec/codec.h"

namespace shardwright {
namespace {

constexpr uint16_t kStored = 0;

Error wrong_sum(const Store& store, const std::string& key, const ZipMember& member, uint32_t found) {
  return fail(Code::kCorrupt, "member '" + member.name + "' does not match its checksum")
      .at_path(store.describe(key))
      .at_offset(member.offset)
      .with_found(fmt::format("CRC-32 {:08x}", found))
      .with_expected(fmt::format("{:08x}", member.crc32));
}

bool matches(const ZipMember& member, uint32_t found, ZeroSum zero) {
  return found == member.crc32 || (member.crc32 == 0 && zero == ZeroSum::kIsNone);
}

}  // namespace

Result<Bytes> read_zip_member(Store& store, const std::string& key, const ZipMember& member, ZeroSum zero) {
  Bytes stored(member.stored_bytes), out;
  ReadOp op{key, member.offset, stored};
  SHARDWRIGHT_TRY(store.read({&op, 1}));
  if (member.method == kStored) {
    out = std::move(stored);
  } else {
    CodecSpec chain[] = {{"deflate", 0}};
    SHARDWRIGHT_ASSIGN(auto decoder, make_decoder(chain, member.bytes));
    SHARDWRIGHT_TRY(decoder->push(stored, true, [&](View bytes) -> Status {
      out.insert(out.end(), bytes.begin(), bytes.end());
      return {};
    }));
  }
  if (matches(member, crc32(out), zero) && out.size() == member.bytes) return out;
  return wrong_sum(store, key, member, crc32(out));
}

Status check_zip_members(Store& store, const std::string& key, std::span<const ZipMember> members, uint64_t decode_cap,
                         const OpenOptions& options, ZeroSum zero) {
  for (const auto& member : members) {
    if (member.method != kStored) {  // decoded as a whole
      bool capped = member.bytes > decode_cap || member.stored_bytes > decode_cap;
      auto bytes = capped ? Result<Bytes>(Bytes()) : read_zip_member(store, key, member, zero);
      if (!bytes.ok()) SHARDWRIGHT_TRY(options.report(std::move(bytes.error())));
      continue;
    }
    uint32_t crc = 0;
    auto add = [&](View bytes) -> Status {
      crc = crc32(bytes, crc);
      return {};
    };
    SHARDWRIGHT_TRY(read_blocks(store, key, member.offset, member.stored_bytes, add));
    if (!matches(member, crc, zero)) SHARDWRIGHT_TRY(options.report(wrong_sum(store, key, member, crc)));
  }
  return {};
}

}  // namespace shardwright
