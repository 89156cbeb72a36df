#include "shardwright/engine/read_part.h"

#include <algorithm>
#include <utility>

#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

/// Reads are handed to the store in batches of this many.
constexpr size_t kBatch = 4096;
/// Decoded blocks of at least this size skip the slab.
constexpr uint64_t kLeastHandedOn = 64 * KiB;

size_t element_bytes(DType dtype) { return dtype_row(dtype).block_bytes; }

/// The part is one decoded chunk, all of it, as the decoder makes it.
bool is_whole_chunk(const Part& part, const Piece& piece, const Encoding& encoding) {
  bool whole = part.move->mode == Move::kStream || part.box == piece.box;
  return whole && !encoding.big_endian && chunk_box(piece) == piece.box;
}

/// Offsets come signed from strides; those that are read are not negative (checked when planned).
uint64_t bytes_at(DType stored, int64_t elements) { return bytes_in(stored, static_cast<uint64_t>(elements)); }

/// One task's reads, and what is to be done when they are there.
class Reader {
 public:
  Reader(const Plan& plan, Store* store, MutableView buffer) : plan_(plan), store_(store), buffer_(buffer) {}

  Status add(const Part& part) {
    if (part.move->mode == Move::kLiteral || part.range.count == 0 || !part.lent.empty()) return {};
    const auto& g = *part.geometry;
    auto target = part.direct ? MutableView(reinterpret_cast<std::byte*>(g.to->place.offset), g.to->place.length)
                                    .subspan(bytes_at(g.out, static_cast<int64_t>(part.range.first)), part.in_bytes)
                              : buffer_.subspan(part.in_at, part.in_bytes);
    if (g.from) return add_flat(part, target);
    for (const Source& source : part.sources) {
      auto status = add_source(part, source, target);
      if (!status.ok()) return std::move(status.error()).at_tensor(std::string(plan_.from.spec(part.move->from).name));
    }
    return {};
  }

  Status read() {
    if (ops_.empty()) return {};
    auto status = store_->read(ops_);
    ops_.clear();
    return status;
  }

  /// Scatters what was read in one go, decodes what is encoded.
  Status settle(const Part& part) {
    bool nothing = part.move->mode == Move::kLiteral || part.range.count == 0 || !part.lent.empty();
    if (nothing || part.geometry->from) return {};
    auto stage = buffer_.subspan(part.in_at, part.in_bytes);
    bool swapped = false;
    for (const Source& source : part.sources) {
      const auto& encoding = plan_.from.encoding(source.piece->encoding);
      swapped = swapped || encoding.big_endian;
      if (!encoding.chain.empty()) {
        auto status = decode_into(part, source, stage);
        if (!status.ok())
          return std::move(status.error()).at_tensor(std::string(plan_.from.spec(part.move->from).name));
      } else if (source.scratch_bytes > 0) {
        scatter(part, source, buffer_.subspan(source.scratch_at).data(), layout_of(*source.piece),
                layout_of(*source.piece).offset_of(source.overlap.start), stage);
      }
    }
    // All pieces of a tensor share one byte order: checked when planned.
    if (swapped) byteswap(stage, swap_unit_bytes(part.geometry->in));
    return {};
  }

 private:
  Status add_op(ObjectId object, uint64_t offset, MutableView into) {
    ops_.push_back({plan_.from.objects()[object].key, offset, into});
    return ops_.size() >= kBatch ? read() : Status{};
  }

  Status add_flat(const Part& part, MutableView target) {
    const auto& place = part.geometry->from->place;
    uint64_t skip = bytes_at(part.geometry->in, static_cast<int64_t>(part.range.first));
    switch (place.site) {
      case Place::kExtent: return add_op(place.object, place.offset + skip, target);
      case Place::kLiteral:
        std::ranges::copy(plan_.from.literal(place).subspan(skip, target.size()), target.begin());
        return {};
      case Place::kMemory: {
        auto from = reinterpret_cast<const std::byte*>(place.offset) + skip;
        std::copy_n(from, target.size(), target.data());
        return {};
      }
      case Place::kCall: return {};  // produced on the calling thread
    }
    return {};
  }

  Status add_source(const Part& part, const Source& source, MutableView stage) {
    const Piece& piece = *source.piece;
    const auto& encoding = plan_.from.encoding(piece.encoding);
    if (!encoding.chain.empty() || piece.place.site == Place::kCall) return {};
    auto layout = layout_of(piece);
    if (piece.place.site == Place::kMemory) {
      scatter(part, source, reinterpret_cast<const std::byte*>(piece.place.offset), layout, 0, stage);
      return {};
    }
    if (piece.place.site == Place::kLiteral) {
      scatter(part, source, plan_.from.literal(piece.place).data(), layout, 0, stage);
      return {};
    }
    if (source.scratch_bytes > 0) {
      auto last = source.overlap.start;
      for (size_t d = 0; d < last.size(); ++d) last[d] += source.overlap.extent[d] - 1;
      int64_t first = layout.offset_of(source.overlap.start);
      uint64_t span = bytes_at(encoding.stored, layout.offset_of(last) - first + 1);
      return add_op(piece.place.object, piece.place.offset + bytes_at(encoding.stored, first),
                    buffer_.subspan(source.scratch_at, span));
    }
    Status status;
    for_each_run(source.overlap, layout, {part.box, c_strides(part.box.extent)},
                 [&](int64_t from, int64_t to, int64_t elements) {
                   if (!status.ok()) return;
                   status = add_op(piece.place.object, piece.place.offset + bytes_at(encoding.stored, from),
                                   stage.subspan(bytes_at(encoding.stored, to), bytes_at(encoding.stored, elements)));
                 });
    return status;
  }

  /// `data` points at element `data_first` of the piece's layout.
  void scatter(const Part& part, const Source& source, const std::byte* data, const Strided& layout, int64_t data_first,
               MutableView stage) {
    DType stored = plan_.from.encoding(source.piece->encoding).stored;
    // Counted from the first element of the piece, of which `data` has what follows data_first.
    copy_values(stored, source.overlap, layout, data - bytes_at(stored, data_first),
                {part.box, c_strides(part.box.extent)}, stage.data());
  }

  Status decode_into(const Part& part, const Source& source, MutableView stage) {
    const auto& encoding = plan_.from.encoding(source.piece->encoding);
    auto slab_bytes = round_up(std::min(encoding.decoded_bytes, plan_.part_limit), 64);
    auto slab = buffer_.subspan(source.scratch_at, slab_bytes);
    auto input = buffer_.subspan(source.scratch_at + slab_bytes, source.scratch_bytes - slab_bytes);
    Box chunk = chunk_box(*source.piece);
    auto size = element_bytes(encoding.stored);
    auto whole = decoded_in_place(plan_, part);
    if (whole.empty() && part.sources.size() == 1 && is_whole_chunk(part, *source.piece, encoding)) whole = stage;
    if (!whole.empty()) return decode_whole(plan_, *store_, part.move->from, *source.piece, slab, input, whole);
    return decode_piece(
        plan_, *store_, part.move->from, *source.piece, slab, input, [&](uint64_t first, View values) -> Result<bool> {
          bool behind = false;
          for (const Box& box : boxes_of_range(chunk, first, values.size() / size)) {
            behind = box.start.size() > 0 && box.start[0] >= source.overlap.start[0] + source.overlap.extent[0];
            auto wanted = intersect(box, source.overlap);
            if (!wanted) continue;
            Strided layout{chunk, c_strides(chunk.extent)};
            copy_strided(*wanted, layout, values.data() - first * size, {part.box, c_strides(part.box.extent)},
                         stage.data(), size);
          }
          return !behind;
        });
  }

  const Plan& plan_;
  Store* store_;
  MutableView buffer_;
  std::vector<ReadOp> ops_;
};

/// Decoded bytes on their way to a consumer, in runs of whole elements.
class DecodedRuns {
 public:
  using Flush = std::function<Result<bool>(uint64_t first, View values)>;
  /// slab: gathers what comes in small blocks. used: elements that are wanted, the rest is dropped. may_hand_on: large blocks go on as they
  /// are, without a copy; bytes that the consumer swaps in place must lie in the slab.
  DecodedRuns(MutableView slab, uint64_t element_bytes, uint64_t used, bool may_hand_on, const Flush& flush)
      : slab_(slab.first(slab.size() / element_bytes * element_bytes)),
        size_(element_bytes),
        used_(used),
        may_hand_on_(may_hand_on),
        flush_(flush) {}

  /// False once the consumer has all it wants.
  bool more() const { return more_; }

  Status add(View bytes) {
    while (!bytes.empty() && more_) {
      uint64_t ready = std::min<uint64_t>(bytes.size(), slab_.size()) / size_ * size_;
      if (held_ == 0 && ready >= kLeastHandedOn && may_hand_on_) {
        SHARDWRIGHT_TRY(hand_on(bytes.first(ready)));
        bytes = bytes.subspan(ready);
        continue;
      }
      uint64_t take = std::min<uint64_t>(bytes.size(), slab_.size() - held_);
      std::copy_n(bytes.data(), take, slab_.data() + held_);
      held_ += take;
      bytes = bytes.subspan(take);
      if (held_ == slab_.size()) SHARDWRIGHT_TRY(end());
    }
    return {};
  }

  /// Hands on what is held.
  Status end() { return hand_on(View(slab_).first(std::exchange(held_, 0))); }

 private:
  Status hand_on(View values) {
    uint64_t count = std::min(values.size() / size_, used_ - flushed_);
    if (count == 0) return {};
    SHARDWRIGHT_ASSIGN(more_, flush_(flushed_, values.first(count * size_)));
    flushed_ += count;
    return {};
  }

  MutableView slab_;
  const uint64_t size_, used_;
  const bool may_hand_on_;
  const Flush& flush_;
  uint64_t held_ = 0, flushed_ = 0;
  bool more_ = true;
};

}  // namespace

Box chunk_box(const Piece& piece) {
  Box box = piece.box;
  // strides[d - 1] = extent[d] * strides[d] in the full chunk; dimension 0 is only ever clipped at its end, which no reader passes.
  for (size_t d = 1; d < piece.strides.size(); ++d)
    if (piece.strides[d] > 0) box.extent[d] = std::max(box.extent[d], piece.strides[d - 1] / piece.strides[d]);
  return box;
}

MutableView decoded_in_place(const Plan& plan, const Part& part) {
  const auto& g = *part.geometry;
  if (!plan.objects.empty() || part.sources.size() != 1 || g.in != g.out || dtype_row(g.in).block_elems != 1) return {};
  const Piece& piece = *part.sources.front().piece;
  const auto& encoding = plan.from.encoding(piece.encoding);
  if (encoding.chain.empty() || !is_whole_chunk(part, piece, encoding)) return {};
  const Piece* holder = nullptr;
  auto pieces = plan.to.pieces(part.move->to);
  for (const Piece& target : pieces) {
    if (target.place.site != Place::kMemory) return {};
    if (!target.box.contains(piece.box)) continue;
    if (holder != nullptr) return {};  // replicas are filled from one copy
    holder = &target;
  }
  if (holder == nullptr) return {};
  Strided held = layout_of(*holder);
  if (!Strided{piece.box, held.strides}.is_c_order()) return {};
  auto* first = reinterpret_cast<std::byte*>(holder->place.offset) + bytes_at(g.in, held.offset_of(piece.box.start));
  return {first, encoding.decoded_bytes};
}

Status decode_piece(const Plan& plan, Store& store, TensorId tensor, const Piece& piece, MutableView slab,
                    MutableView input, const std::function<Result<bool>(uint64_t first, View values)>& flush,
                    MutableView whole) {
  const auto& encoding = plan.from.encoding(piece.encoding);
  bool literal = piece.place.site == Place::kLiteral;
  const std::string key = literal ? "" : plan.from.objects()[piece.place.object].key;
  SHARDWRIGHT_ASSIGN(auto decoder, make_decoder(encoding.chain, encoding.decoded_bytes));
  const bool in_place = !whole.empty() && decoder->decode_into(whole);
  // Elements past the last row that the tensor has are padding: decoded (checksums stand at the end) and dropped.
  DecodedRuns runs(slab, element_bytes(encoding.stored), chunk_box(piece).elements(), !encoding.big_endian, flush);
  bool theirs = false;  // of flush, which says itself where its error is
  auto emit = [&](View bytes) -> Status {
    if (in_place) return {};
    auto status = runs.add(bytes);
    theirs = !status.ok();
    return status;
  };
  auto named = [&](Status status) -> Status {
    if (status.ok() || theirs) return status;
    return std::move(status.error()).at_tensor(std::string(plan.from.spec(tensor).name));
  };
  for (uint64_t at = 0; runs.more();) {
    uint64_t take = std::min<uint64_t>(input.size(), piece.place.length - at);
    View encoded = literal ? plan.from.literal(piece.place).subspan(at, take) : View(input).first(take);
    if (!literal) {
      ReadOp op{key, piece.place.offset + at, input.first(take)};
      SHARDWRIGHT_TRY(named(store.read({&op, 1})));
    }
    at += take;
    bool last = at == piece.place.length;
    auto status = decoder->push(encoded, last, emit);
    if (!status.ok()) {
      if (!literal && !theirs) {
        status.error().path = store.describe(key);
        status.error().offset = piece.place.offset;
      }
      return named(std::move(status));
    }
    if (last) return runs.end();
  }
  return {};
}

Status decode_whole(const Plan& plan, Store& store, TensorId tensor, const Piece& piece, MutableView slab,
                    MutableView input, MutableView whole) {
  auto size = element_bytes(plan.from.encoding(piece.encoding).stored);
  auto copy = [&](uint64_t first, View values) -> Result<bool> {
    std::copy_n(values.data(), values.size(), whole.data() + first * size);
    return true;
  };
  return decode_piece(plan, store, tensor, piece, slab, input, copy, whole);
}

Status read_parts(const Plan& plan, Store* store, std::span<const Part> parts, MutableView buffer) {
  Reader reader(plan, store, buffer);
  auto named = [&](Status status, const Part& part) -> Status {
    if (status.ok() || !status.error().tensor.empty() || part.move->from == kNoTensor) return status;
    return std::move(status.error()).at_tensor(std::string(plan.from.spec(part.move->from).name));
  };
  for (const Part& part : parts) SHARDWRIGHT_TRY(named(reader.add(part), part));
  if (auto status = reader.read(); !status.ok()) {
    for (const Part& part : parts) {  // one batch for all: whose bytes were they?
      Reader alone(plan, store, buffer);
      SHARDWRIGHT_TRY(named(alone.add(part), part));
      SHARDWRIGHT_TRY(named(alone.read(), part));
    }
    return named(std::move(status), parts.front());
  }
  for (const Part& part : parts) {
    if (part.move->mode == Move::kLiteral) continue;
    SHARDWRIGHT_TRY(reader.settle(part));
    const auto& g = *part.geometry;
    if (g.in == g.out || part.range.count == 0) continue;
    SHARDWRIGHT_TRY(named(
        convert(g.in, buffer.subspan(part.in_at, part.in_bytes), g.out, buffer.subspan(part.out_at, part.out_bytes)),
        part));
  }
  return {};
}

}  // namespace shardwright
