/// Layout of the records of a zip archive (APPNOTE 4.3): signatures, sizes and offsets of fields. On disk: never change.
#pragma once

#include <cstdint>

namespace shardwright::detail {

inline constexpr uint32_t kLocalSignature = 0x04034b50, kDirectorySignature = 0x02014b50, kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50, kLocatorSignature = 0x07064b50;
/// Bytes of the fixed part of each record, signature included.
inline constexpr uint64_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
/// In a 16 or 32-bit field: the value is in the zip64 record or extra field.
inline constexpr uint16_t kSee64Short = 0xffff;
inline constexpr uint32_t kSee64 = 0xffffffff;
/// Extra fields.
inline constexpr uint16_t kExtraZip64 = 0x0001, kExtraPadding = 0xd935;
/// General purpose flags.
inline constexpr uint16_t kFlagEncrypted = 1 << 0, kFlagDescriptor = 1 << 3, kFlagPatch = 1 << 5,
                          kFlagStrongEncryption = 1 << 6, kFlagUtf8 = 1 << 11, kFlagMasked = 1 << 13;

}  // namespace shardwright::detail
