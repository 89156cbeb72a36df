/// Fills parts with the values of their sources.
#pragma once

#include <functional>
#include <span>

#include "shardwright/engine/task.h"

namespace shardwright {

/// Reads and decodes what the region parts of a task (kRegion; slabs of kEncode) need (not what producers make) and converts it to the wanted dtype. Afterwards the
/// values of part p, C order of its range, are Part::values(buffer) (direct parts: in the caller's memory).
/// One batch of reads for the whole task. Errors name tensor and object.
Status read_parts(const Plan& plan, Store* store, std::span<const Part> parts, MutableView buffer);

/// Decodes one encoded piece in slabs: flush(first, values) gets elements [first, first + n) of the *decoded chunk* in its C order, in
/// order, until it returns false or the chunk ends. Errors of flush come out as they are; all others name `tensor` and the object. `slab` holds at least one element; `input` is for encoded bytes. `whole`: memory for the
/// decoded chunk, offered to the codec; if it takes it, nothing is flushed.
Status decode_piece(const Plan& plan, Store& store, TensorId tensor, const Piece& piece, MutableView slab,
                    MutableView input, const std::function<Result<bool>(uint64_t first, View values)>& flush,
                    MutableView whole = {});
/// Decodes one encoded piece into memory of its size, without a copy where the codec can.
Status decode_whole(const Plan& plan, Store& store, TensorId tensor, const Piece& piece, MutableView slab,
                    MutableView input, MutableView whole);
/// The caller's memory that the part's encoded chunk is decoded into, when the part is that chunk and nobody else wants its values; empty: it goes
/// through the buffer.
MutableView decoded_in_place(const Plan& plan, const Part& part);

/// The whole decoded chunk as a box in the tensor's indices: its extents from the strides, so that an edge chunk's padding is seen.
Box chunk_box(const Piece& piece);

}  // namespace shardwright
