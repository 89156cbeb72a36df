/// Members of a zip archive as a whole: decoded, and held against their checksums.
#pragma once

#include <span>
#include <string>

#include "shardwright/format/format.h"
#include "shardwright/store/zip.h"

namespace shardwright {

/// What a CRC-32 of 0 in the directory means for a member that has bytes.
enum class ZeroSum { kIsASum, kIsNone };

/// A member's bytes, decoded and checked. The caller caps member.bytes and member.stored_bytes.
/// Errors: kCorrupt: not what its checksum or its size says.
Result<Bytes> read_zip_member(Store& store, const std::string& key, const ZipMember& member,
                              ZeroSum zero = ZeroSum::kIsASum);

/// Reads every member and reports those that do not match; compressed ones of more than `decode_cap` bytes are left out.
Status check_zip_members(Store& store, const std::string& key, std::span<const ZipMember> members, uint64_t decode_cap,
                         const OpenOptions& options, ZeroSum zero = ZeroSum::kIsASum);

}  // namespace shardwright
