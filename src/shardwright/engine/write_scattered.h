/// A box of a tensor into an object that holds the whole tensor: run by run.
#pragma once

#include "shardwright/engine/write_part.h"

namespace shardwright {

/// part: of a geometry that is scattered; values: its own, packed, in the target dtype. segment_offset: of the box's first element.
/// checksum: from the end of the part before to its own, bytes of others as zero; null without. Memory: 1024 write operations.
Status write_scattered(const Part& part, uint64_t segment_offset, View values, Writer& writer, bool wants_crc32,
                       PartChecksum* checksum);

}  // namespace shardwright
