#include "shardwright/engine/write_part.h"

#include <algorithm>

#include "shardwright/base/checksum.h"
#include "shardwright/engine/read_part.h"
#include "shardwright/engine/side_by_side.h"
#include "shardwright/engine/write_scattered.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

/// Where the kMemory or kCall pieces of a target lie; one whole piece for a tensor that has none of its own.
std::vector<Piece> target_pieces(const Plan& plan, const Part& part) {
  auto pieces = plan.to.pieces(part.move->to);
  std::erase_if(pieces, [](const Piece& piece) {
    return piece.place.site != Place::kMemory && piece.place.site != Place::kCall;
  });
  if (pieces.empty()) pieces.push_back({part.geometry->box, {Place::kCall}, 0, {}});
  return pieces;
}

/// Values of `region`, packed in C order at `values`, into the memory pieces it cuts.
void store_region(const Plan& plan, const Part& part, const Box& region, const std::byte* values) {
  for (const Piece& piece : target_pieces(plan, part)) {
    if (piece.place.site != Place::kMemory) continue;
    auto overlap = intersect(region, piece.box);
    if (!overlap) continue;
    Strided to = layout_of(piece);
    auto* into = reinterpret_cast<std::byte*>(piece.place.offset);
    copy_values(part.geometry->out, *overlap, {region, c_strides(region.extent)}, values, to, into);
  }
}

Status consume_region(const Plan& plan, const Part& part, const Box& region, View values, const Calls& calls) {
  Strided held{region, c_strides(region.extent)};
  for (const Piece& piece : target_pieces(plan, part)) {
    if (piece.place.site != Place::kCall) continue;
    if (region.empty() || piece.box.contains(region)) {
      SHARDWRIGHT_TRY(calls.consume(part.move->to, region, values));
      continue;
    }
    auto overlap = intersect(region, piece.box);
    if (!overlap) continue;
    Bytes packed(bytes_in(part.geometry->out, overlap->elements()));
    copy_values(part.geometry->out, *overlap, held, values.data(), {*overlap, c_strides(overlap->extent)},
                packed.data());
    SHARDWRIGHT_TRY(calls.consume(part.move->to, *overlap, packed));
  }
  return {};
}

/// Runs on their way to one object, handed on in batches: a slab can be cut into a run for every few bytes.
class RunWriter {
 public:
  RunWriter(Writer& writer, uint64_t base, bool wants_crc32, PartChecksum* checksum)
      : writer_(writer), base_(base), wants_crc32_(wants_crc32), checksum_(checksum) {}
  Status add(uint64_t offset, View run) {
    if (checksum_ != nullptr) checksum_->add(run, wants_crc32_);
    ops_.push_back({base_ + offset, run});
    return ops_.size() < kBatch ? Status{} : flush();
  }
  Status flush() {
    auto status = writer_.write(ops_);
    ops_.clear();
    return status;
  }

 private:
  static constexpr size_t kBatch = 1024;  // as many as one system call takes
  Writer& writer_;
  uint64_t base_;
  bool wants_crc32_;
  PartChecksum* checksum_;
  std::vector<WriteOp> ops_;
};

/// Part of a decoded chunk: `wanted` of it lies in the tensor. values: those of `box`, C order, target dtype.
struct Decoded {
  Box box, wanted;
  View values;
};

/// Decodes a part's only piece and hands it on, box by box in C order of the chunk; `done` after the boxes of one decoded slab, whose
/// memory is used again then. Several pieces: whole rows of all of them.
Status for_each_decoded(const Plan& plan, const Part& part, Store& store, MutableView buffer,
                        const std::function<Status(const Decoded&)>& take, const std::function<Status()>& done) {
  const auto& g = *part.geometry;
  const Source& source = part.sources.front();
  const Piece& piece = *source.piece;
  bool big_endian = plan.from.encoding(piece.encoding).big_endian;
  Box chunk = chunk_box(piece);
  const Strided held{chunk, c_strides(chunk.extent)};
  size_t in_size = dtype_row(g.in).block_bytes, out_size = dtype_row(g.out).block_bytes;
  auto slab = buffer.subspan(part.in_at, part.in_bytes), out = buffer.subspan(part.out_at, part.out_bytes);
  auto input = buffer.subspan(source.scratch_at, source.scratch_bytes);
  if (part.sources.size() > 1)
    return decode_side_by_side(plan, part, store, buffer, [&](const Box& rows, MutableView values) -> Status {
      if (big_endian) byteswap(values, swap_unit_bytes(g.in));
      View ready = g.in != g.out ? View(out.first(rows.elements() * out_size)) : View(values);
      if (g.in != g.out) SHARDWRIGHT_TRY(convert(g.in, values, g.out, out.first(ready.size())));
      SHARDWRIGHT_TRY(take({rows, rows, ready}));
      return done();
    });
  return decode_piece(
      plan, store, part.move->from, piece, slab, input, [&](uint64_t first, View values) -> Result<bool> {
        uint64_t count = values.size() / in_size;
        if (big_endian) byteswap(slab.first(values.size()), swap_unit_bytes(g.in));
        if (g.in != g.out) SHARDWRIGHT_TRY(convert(g.in, values, g.out, out.first(count * out_size)));
        View ready = g.in != g.out ? View(out.first(count * out_size)) : values;
        for (const Box& box : boxes_of_range(chunk, first, count)) {
          auto wanted = intersect(box, piece.box);
          if (!wanted) continue;
          auto at = static_cast<uint64_t>(held.offset_of(box.start) - static_cast<int64_t>(first)) * out_size;
          SHARDWRIGHT_TRY(take({box, *wanted, ready.subspan(at, box.elements() * out_size)}));
        }
        SHARDWRIGHT_TRY(done());
        return true;
      });
}

}  // namespace

void PartChecksum::add(View next, bool wants_crc32) {
  crc32c = shardwright::crc32c(next, crc32c);
  if (wants_crc32) crc32 = shardwright::crc32(next, crc32);
  bytes += next.size();
}

Status write_parts(const Plan& plan, const Lane& lane, std::span<const Part> parts, View buffer, Writer& writer,
                   bool wants_crc32, std::vector<PartChecksum>& checksums) {
  std::vector<WriteOp> ops;
  ops.reserve(parts.size());
  for (const Part& part : parts) {
    const Segment& segment = lane.segments[part.move->segment];
    bool literal = part.move->mode == Move::kLiteral;
    View bytes = literal ? segment.literal : part.values(buffer);
    uint64_t skip = literal ? 0 : bytes_in(part.geometry->out, part.range.first);
    if (!literal && part.geometry->scattered) {
      PartChecksum* sum = plan.options.checksums ? &checksums.emplace_back() : nullptr;
      SHARDWRIGHT_TRY(write_scattered(part, segment.offset, bytes, writer, wants_crc32, sum));
      continue;
    }
    if (plan.options.checksums) checksums.emplace_back().add(bytes, wants_crc32);
    if (!bytes.empty()) ops.push_back({segment.offset + skip, bytes});
  }
  return ops.empty() ? Status{} : writer.write(ops);
}

void store_part(const Plan& plan, const Part& part, View buffer) {
  if (part.direct || part.range.count == 0 || !decoded_in_place(plan, part).empty()) return;
  View values = buffer.subspan(part.out_at, part.out_bytes);
  if (part.geometry->line) {
    const auto& place = part.geometry->to->place;
    std::copy_n(values.data(), values.size(),
                reinterpret_cast<std::byte*>(place.offset) + bytes_in(part.geometry->out, part.range.first));
    return;
  }
  store_region(plan, part, part.box, values.data());
}

std::vector<Filled> filled_by(const Plan& plan, const Part& part) {
  if (part.geometry->line) return {{part.geometry->piece, part.range.count}};
  const Box region = part.move->mode == Move::kStream ? streamed_box(part) : part.box;
  std::vector<Filled> filled;
  auto pieces = plan.to.pieces(part.move->to);
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    auto overlap = intersect(region, pieces[i].box);
    if (overlap) filled.push_back({i, overlap->elements()});
  }
  return filled;
}

Status consume_part(const Plan& plan, const Part& part, View buffer, const Calls& calls) {
  if (!calls.consume) return {};
  return consume_region(plan, part, part.box, buffer.subspan(part.out_at, part.out_bytes), calls);
}

Status stream_part(const Plan& plan, const Part& part, Store& store, MutableView buffer, const Calls& calls) {
  size_t size = dtype_row(part.geometry->out).block_bytes;
  if (auto whole = decoded_in_place(plan, part); !whole.empty()) {
    const Source& source = part.sources.front();
    return decode_whole(plan, store, part.move->from, *source.piece, buffer.subspan(part.in_at, part.in_bytes),
                        buffer.subspan(source.scratch_at, source.scratch_bytes), whole);
  }
  auto take = [&](const Decoded& decoded) -> Status {
    Bytes inside;
    View values = decoded.values;
    if (decoded.wanted != decoded.box) {  // an edge chunk: pack what is inside
      inside.resize(decoded.wanted.elements() * size);
      copy_strided(decoded.wanted, {decoded.box, c_strides(decoded.box.extent)}, values.data(),
                   {decoded.wanted, c_strides(decoded.wanted.extent)}, inside.data(), size);
      values = inside;
    }
    store_region(plan, part, decoded.wanted, values.data());
    return calls.consume ? consume_region(plan, part, decoded.wanted, values, calls) : Status{};
  };
  return for_each_decoded(plan, part, store, buffer, take, [] { return Status{}; });
}

Status stream_part(const Plan& plan, const Lane& lane, const Part& part, Store& store, MutableView buffer,
                   Writer& writer, bool wants_crc32, PartChecksum* checksum) {
  const Box& tensor = part.geometry->box;
  const Strided target{tensor, c_strides(tensor.extent)};
  size_t size = dtype_row(part.geometry->out).block_bytes;
  RunWriter runs(writer, lane.segments[part.move->segment].offset, wants_crc32, checksum);
  auto take = [&](const Decoded& decoded) {
    Status status;
    for_each_run(decoded.wanted, {decoded.box, c_strides(decoded.box.extent)}, target,
                 [&](int64_t from, int64_t to, int64_t elements) {
                   if (!status.ok()) return;
                   auto run = decoded.values.subspan(static_cast<uint64_t>(from) * size,
                                                     static_cast<uint64_t>(elements) * size);
                   status = runs.add(static_cast<uint64_t>(to) * size, run);
                 });
    return status;
  };
  return for_each_decoded(plan, part, store, buffer, take, [&] { return runs.flush(); });
}

}  // namespace shardwright
