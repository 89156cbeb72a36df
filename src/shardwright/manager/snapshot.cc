#include "shardwright/manager/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "shardwright/base/stream_copy.h"
#include "shardwright/base/text.h"
#include "shardwright/base/threads.h"

namespace shardwright {
namespace {

constexpr uint64_t kAlignment = 64, kPartBytes = 8 * MiB;

/// One piece to be copied: where it goes, from the beginning of the memory.
struct Held {
  TensorId tensor;
  Piece piece;
  uint64_t offset, bytes;
};

/// Every distinct box of every tensor once; ties have none.
std::vector<Held> layout(const Catalog& tensors) {
  std::vector<Held> out;
  uint64_t at = 0;
  for (TensorId id = 0; id < tensors.size(); ++id) {
    if (tensors.same_as(id) != id) continue;
    size_t first = out.size();
    for (auto& piece : tensors.pieces(id)) {
      bool again = std::any_of(out.begin() + static_cast<ptrdiff_t>(first), out.end(),
                               [&](const Held& held) { return held.piece.box == piece.box; });
      if (again) continue;
      DType stored = tensors.encoding(piece.encoding).stored;
      uint64_t bytes = bytes_of_elements(stored, piece.box.elements()).value_or(0);
      out.push_back({id, std::move(piece), at, bytes});
      at += round_up(bytes, kAlignment);
    }
  }
  return out;
}

uint64_t end_of(const std::vector<Held>& held) {
  return held.empty() ? 0 : held.back().offset + round_up(held.back().bytes, kAlignment);
}

/// A part of a piece: bytes in a row, or a box of a strided one.
struct Part {
  const Held* held;
  uint64_t offset, bytes;  ///< in a row, from the beginning of the piece
  Box box{};               ///< strided: of the tensor
};

void cut(const Catalog& tensors, const Held& held, std::vector<Part>& parts) {
  if (held.bytes == 0 || held.piece.place.site != Place::kMemory) return;
  Strided from = layout_of(held.piece);
  if (from.is_c_order()) {
    for (uint64_t at = 0; at < held.bytes; at += kPartBytes)
      parts.push_back({&held, at, std::min(kPartBytes, held.bytes - at)});
    return;
  }
  uint64_t width = dtype_row(tensors.encoding(held.piece.encoding).stored).block_bytes;
  uint64_t elements = held.piece.box.elements(), step = std::max<uint64_t>(1, kPartBytes / width);
  for (uint64_t at = 0; at < elements; at += step)
    for (auto& box : boxes_of_range(held.piece.box, at, std::min(step, elements - at)))
      parts.push_back({&held, 0, 0, std::move(box)});
}

void copy(const Catalog& tensors, const Part& part, std::byte* memory) {
  const Held& held = *part.held;
  auto from = reinterpret_cast<const std::byte*>(held.piece.place.offset);
  std::byte* to = memory + held.offset;
  if (part.bytes != 0) {
    stream_copy(to + part.offset, from + part.offset, part.bytes);
    return;
  }
  size_t width = dtype_row(tensors.encoding(held.piece.encoding).stored).block_bytes;
  copy_strided(part.box, layout_of(held.piece), from, {held.piece.box, c_strides(held.piece.box.extent)}, to, width);
}

Error no_memory() {
  return fail(Code::kResourceExhausted, "the system has not enough memory for a copy of what is to be saved")
      .with_hint("a save that does not return before it is done needs none");
}

Status copy_all(const Catalog& tensors, const std::vector<Part>& parts, std::byte* memory, int threads) {
  std::atomic<bool> failed{false};
  on_threads(parts.size(), threads, [&](size_t i) {
    try {
      copy(tensors, parts[i], memory);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  return failed ? no_memory() : Status();
}

Result<Slab> allocate(uint64_t bytes) {
  try {
    return Slab::allocate(bytes);
  } catch (const std::bad_alloc&) {
    return no_memory().with_expected(format_bytes(bytes));
  }
}

}  // namespace

uint64_t Snapshot::needed_bytes(const Catalog& tensors) { return end_of(layout(tensors)); }

Result<Catalog> Snapshot::hold(const Catalog& tensors, const Calls& calls, int threads) {
  auto held = layout(tensors);
  for (const auto& one : held)
    if (one.bytes != 0 && one.piece.place.site != Place::kMemory && one.piece.place.site != Place::kCall)
      return fail(Code::kUnsupported, "only what is in memory, or is called for, can be held")
          .at_tensor(std::string(tensors.spec(one.tensor).name));
  uint64_t needed = end_of(held);
  if (needed > limit_bytes_)
    return fail(Code::kResourceExhausted, "what is to be saved does not fit the staging memory")
        .with_found(format_bytes(needed))
        .with_expected("at most " + format_bytes(limit_bytes_))
        .with_hint("a higher limit, or a save that does not return before it is done");
  if (needed > memory_.size()) {
    memory_ = {};  // before the larger one is there
    SHARDWRIGHT_ASSIGN(memory_, allocate(needed));
  }
  std::vector<Part> parts;
  for (const auto& one : held) cut(tensors, one, parts);
  SHARDWRIGHT_TRY(copy_all(tensors, parts, memory_.data(), threads));
  for (const auto& one : held)
    if (one.piece.place.site == Place::kCall && one.bytes != 0)
      SHARDWRIGHT_TRY(calls.produce(one.tensor, one.piece.box, memory_.span().subspan(one.offset, one.bytes)));
  CatalogBuilder builder;
  auto piece = held.begin();
  for (TensorId id = 0; id < tensors.size(); ++id) {
    auto spec = tensors.spec(id);
    SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
    if (tensors.same_as(id) != id) builder.tie(id, tensors.same_as(id));
    for (; piece != held.end() && piece->tensor == id; ++piece) {
      Place place{Place::kMemory, piece->piece.place.rank, 0,
                  reinterpret_cast<uint64_t>(memory_.data() + piece->offset), piece->bytes};
      uint32_t encoding = builder.add_encoding(tensors.encoding(piece->piece.encoding));
      SHARDWRIGHT_TRY(builder.add_piece({piece->piece.box, place, encoding, {}}));
    }
  }
  for (const auto& key : tensors.value_keys()) builder.set_value(key, *tensors.value(key));
  return builder.build(/*partial=*/true);
}

}  // namespace shardwright
