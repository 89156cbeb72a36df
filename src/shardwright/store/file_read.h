/// Batches of ranges of one file, in few system calls.
#pragma once

#include <atomic>
#include <span>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/store/file_cache.h"

namespace shardwright::detail {

/// Bytes [offset, offset + size) of a file into `data`.
struct FileRange {
  uint64_t offset;
  std::byte* data;
  uint64_t size;
  uint64_t end() const { return offset + size; }
};

struct ReadRules {
  uint64_t merge_gap_bytes;  ///< gaps up to this are read and dropped
  bool direct;               ///< O_DIRECT for the aligned middle of ranges of at least kDirectBytes
};
inline constexpr uint64_t kDirectBytes = 1 * MiB, kDirectAlign = 4096;

/// ranges: sorted by offset; may overlap (then they are read twice). Neighbours and gaps become one preadv each. Adds what was read,
/// gaps included, to `counter`. Extra memory: one buffer of the largest gap.
/// Errors: kCorrupt when the file is shorter than a range; kAborted when it changed since it was opened; kIo.
Status read_ranges(const OpenFile& file, std::span<const FileRange> ranges, const ReadRules& rules,
                   std::atomic<uint64_t>& counter);

}  // namespace shardwright::detail
