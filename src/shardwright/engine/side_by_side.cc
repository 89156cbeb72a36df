#include "shardwright/engine/side_by_side.h"

#include <algorithm>
#include <deque>
#include <new>
#include <system_error>
#include <thread>

#include "shardwright/engine/handover.h"
#include "shardwright/engine/read_part.h"

namespace shardwright {
namespace {

/// One chunk, decoded by a thread of its own as far as its values are asked for.
class Side {
 public:
  Side(const Plan& plan, Store& store, TensorId tensor, const Piece& piece, MutableView memory)
      : piece_(piece),
        chunk_(chunk_box(piece)),
        size_(dtype_row(plan.from.encoding(piece.encoding).stored).block_bytes),
        decoder_([this, &plan, &store, tensor, memory](const std::stop_token& stop) {
          slabs_.end(decode(plan, store, tensor, memory, stop));
        }) {}

  /// Copies what the chunk has of these rows. REQUIRES: they follow those asked for before.
  Status fill(const Box& rows, std::byte* out) {
    Strided held{chunk_, c_strides(chunk_.extent)}, target{rows, c_strides(rows.extent)};
    auto end = static_cast<uint64_t>((rows.start[0] + rows.extent[0] - chunk_.start[0]) * held.strides[0]);
    while (at_ < end) {
      if (values_.empty()) {
        SHARDWRIGHT_ASSIGN(values_, slabs_.next());
        if (values_.empty()) return fail(Code::kInternal, "a chunk ended early");
      }
      uint64_t count = std::min<uint64_t>(values_.size() / size_, end - at_);
      const std::byte* first = values_.data() - at_ * size_;
      for (const Box& box : boxes_of_range(chunk_, at_, count))
        if (auto wanted = intersect(box, piece_.box)) copy_strided(*wanted, held, first, target, out, size_);
      values_ = values_.subspan(count * size_);
      at_ += count;
    }
    return {};
  }

  /// After the last row: what stands at the chunk's end, its checksum, holds too.
  Status finish() {
    SHARDWRIGHT_ASSIGN(View rest, slabs_.next());
    return rest.empty() && values_.empty() ? Status() : fail(Code::kInternal, "a chunk has more rows than it must");
  }

 private:
  Status decode(const Plan& plan, Store& store, TensorId tensor, MutableView memory, const std::stop_token& stop) try {
    // Half for encoded bytes, half for what a decoder makes in small blocks.
    auto input = memory.first(memory.size() / 2), slab = memory.subspan(memory.size() / 2);
    return decode_piece(plan, store, tensor, piece_, slab, input, [&](uint64_t, View values) -> Result<bool> {
      SHARDWRIGHT_TRY(slabs_.offer(values, stop));
      return true;
    });
  } catch (const std::bad_alloc&) {
    return fail(Code::kResourceExhausted, "the system has not enough memory, though the budget allows it");
  }

  const Piece& piece_;
  const Box chunk_;
  const size_t size_;
  View values_;      ///< decoded and not yet used, from element at_ on
  uint64_t at_ = 0;  ///< of the chunk
  Handover slabs_;
  std::jthread decoder_;  ///< last: it uses all of the above
};

}  // namespace

Status decode_side_by_side(const Plan& plan, const Part& part, Store& store, MutableView buffer,
                           const std::function<Status(const Box& rows, MutableView values)>& take) {
  const Box& row_of_chunks = part.sources.front().piece->box;
  Box rows = part.geometry->box;
  rows.extent[0] = 1;
  const uint64_t row_bytes = std::max<uint64_t>(1, bytes_in(part.geometry->in, rows.elements()));
  const auto most = static_cast<int64_t>(part.in_bytes / row_bytes);
  const int64_t end = row_of_chunks.start[0] + row_of_chunks.extent[0];
  std::deque<Side> sides;
  try {
    for (const Source& source : part.sources)
      sides.emplace_back(plan, store, part.move->from, *source.piece,
                         buffer.subspan(source.scratch_at, source.scratch_bytes));
  } catch (const std::system_error& error) {
    return fail(Code::kResourceExhausted, std::string("no thread could be started: ") + error.what());
  }
  for (rows.start[0] = row_of_chunks.start[0]; rows.start[0] < end; rows.start[0] += rows.extent[0]) {
    rows.extent[0] = std::min(most, end - rows.start[0]);
    auto values = buffer.subspan(part.in_at, row_bytes * static_cast<uint64_t>(rows.extent[0]));
    for (Side& side : sides) SHARDWRIGHT_TRY(side.fill(rows, values.data()));
    SHARDWRIGHT_TRY(take(rows, values));
  }
  for (Side& side : sides) SHARDWRIGHT_TRY(side.finish());
  return {};
}

}  // namespace shardwright
