/// Zip and zip64 archives as containers: a stored member is a range of the archive. Pure parsers plus two reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardwright/store/store.h"

namespace shardwright {

struct ZipMember {
  std::string name;     ///< as in the directory; not a path until checked
  uint64_t offset = 0;  ///< of the first payload byte in the archive (local header read and checked)
  uint64_t stored_bytes = 0, bytes = 0;
  uint32_t crc32 = 0;
  uint16_t method = 0;  ///< 0 stored, 8 deflate
};

/// Members in directory order. Every local header is read and compared with the directory; ranges may not overlap one another or the
/// directory. Errors: kCorrupt, kUnsupported (encrypted, multi-disk, other methods); caps: 1 GiB of directory, 65,535-byte names.
Result<std::vector<ZipMember>> read_zip(Store& store, std::string_view key);

/// Byte-exact writer of a stored zip: literals with payloads between them. zip64 records where a size or offset needs them.
class ZipLayout {
 public:
  struct Entry {
    std::string name;
    uint64_t bytes;      ///< payload size; must be known
    uint32_t dos_time;   ///< date << 16 | time
    uint64_t align = 1;  ///< payload offset is a multiple of this (extra-field padding)
  };
  /// REQUIRES: names of at most 65,535 bytes; align a power of two up to 32 KiB.
  explicit ZipLayout(std::vector<Entry> entries);
  uint64_t payload_offset(size_t entry) const;
  /// Local header before entry i, its CRC in place: known only once the payload is (late), so it is made on demand.
  Bytes local_header(size_t entry, uint32_t crc32) const;
  uint64_t local_header_offset(size_t entry) const;
  uint64_t local_header_bytes(size_t entry) const;
  /// Central directory and end records. crcs: one per entry.
  Bytes directory(std::span<const uint32_t> crcs) const;
  uint64_t directory_offset() const;
  uint64_t directory_bytes() const;

 private:
  struct Slot {
    Entry entry;
    uint64_t header_offset, header_bytes, payload_offset;
  };
  std::vector<Slot> slots_;
  uint64_t directory_offset_ = 0, directory_bytes_ = 0;
};

}  // namespace shardwright
