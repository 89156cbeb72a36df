/// Hands the values of parts to their targets.
#pragma once

#include <vector>

#include "shardwright/engine/execute.h"
#include "shardwright/engine/task.h"

namespace shardwright {

/// CRC-32C and, where the draft wants it, CRC-32 of one part as stored.
struct PartChecksum {
  uint32_t crc32c = 0, crc32 = 0;
  uint64_t bytes = 0;
  void add(View next, bool wants_crc32);  ///< the bytes that follow
};

/// Writes every part of a task, literals too, to one object. checksums: one entry per part when the plan asks for them, else empty.
Status write_parts(const Plan& plan, const Lane& lane, std::span<const Part> parts, View buffer, Writer& writer,
                   bool wants_crc32, std::vector<PartChecksum>& checksums);

/// Copies a part's values into every kMemory piece of the target that it cuts. Direct parts are there already.
void store_part(const Plan& plan, const Part& part, View buffer);

/// How many elements of which pieces of the target this part filled.
struct Filled {
  uint32_t piece;
  uint64_t elements;
};
std::vector<Filled> filled_by(const Plan& plan, const Part& part);

/// Hands a part to consume(), box by box of the target (packed where the box is not contiguous in the part).
Status consume_part(const Plan& plan, const Part& part, View buffer, const Calls& calls);

/// Decodes the pieces of a kStream part in slabs and stores or consumes them.
Status stream_part(const Plan& plan, const Part& part, Store& store, MutableView buffer, const Calls& calls);
/// The same into one object. checksum: of all bytes in file order, which is that of the chunk where it is the tensor's only one (with
/// checksums no other is streamed); null without. Memory beside the buffer: 1024 write operations.
Status stream_part(const Plan& plan, const Lane& lane, const Part& part, Store& store, MutableView buffer,
                   Writer& writer, bool wants_crc32, PartChecksum* checksum);

}  // namespace shardwright
