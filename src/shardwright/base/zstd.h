/// zstd of whole buffers, for metadata. Tensors go through codec/, which streams.
#pragma once

#include <cstdint>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// One frame, or several one after the other, decoded; grows with what really comes out, so that a lie in the header costs nothing.
/// Errors: kCorrupt for what is no complete frame; kResourceExhausted for more than `cap` bytes.
Result<Bytes> zstd_decompress(View frames, uint64_t cap);

/// One frame that carries its content size and no checksum. level: zstd's own, 0 is its default.
Result<Bytes> zstd_compress(View bytes, int level);

}  // namespace shardwright
