/// Encoded chunks that lie side by side, decoded a few rows of all of them at a time.
#pragma once

#include <functional>

#include "shardwright/engine/task.h"

namespace shardwright {

/// What one chunk needs beside its decoder's window, for its encoded and its decoded bytes.
inline constexpr uint64_t kSideBytes = 128 * KiB;
/// Most chunks in a row: each has a thread.
inline constexpr size_t kMostSideBySide = 64;

/// Decodes the sources of a part, each once: together they are some rows of its geometry's box. take(rows, values): a box of whole rows, one after
/// the other, and its values in C order, as stored; they may be changed there, and are gone on return.
/// REQUIRES: part.in_bytes holds at least a row. Errors: those of reading and decoding; kResourceExhausted where no thread can be started.
Status decode_side_by_side(const Plan& plan, const Part& part, Store& store, MutableView buffer,
                           const std::function<Status(const Box& rows, MutableView values)>& take);

}  // namespace shardwright
