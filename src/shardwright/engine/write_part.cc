#include "shardwright/engine/write_part.h"

#include <algorithm>

#include "shardwright/base/checksum.h"
#include "shardwright/engine/read_part.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

PartChecksum checksum_of(View bytes, bool wants_crc32) {
  return {crc32c(bytes), wants_crc32 ? crc32(bytes) : 0, bytes.size()};
}

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
  size_t size = dtype_row(part.geometry->out).block_bytes;
  for (const Piece& piece : target_pieces(plan, part)) {
    if (piece.place.site != Place::kMemory) continue;
    auto overlap = region.rank() == 0 ? std::optional(region) : intersect(region, piece.box);
    if (!overlap) continue;
    Strided to = layout_of(piece);
    auto* into = reinterpret_cast<std::byte*>(piece.place.offset);
    Strided held{region, c_strides(region.extent)};
    DType out = part.geometry->out;
    if (dtype_row(out).block_elems == 1) {
      copy_strided(*overlap, held, values, to, into, size);
      continue;
    }
    for_each_run(*overlap, held, to, [&](int64_t from, int64_t at, int64_t elements) {
      std::copy_n(values + bytes_in(out, static_cast<uint64_t>(from)), bytes_in(out, static_cast<uint64_t>(elements)),
                  into + bytes_in(out, static_cast<uint64_t>(at)));
    });
  }
}

Status consume_region(const Plan& plan, const Part& part, const Box& region, View values, const Calls& calls) {
  size_t size = dtype_row(part.geometry->out).block_bytes;
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
    copy_strided(*overlap, held, values.data(), {*overlap, c_strides(overlap->extent)}, packed.data(), size);
    SHARDWRIGHT_TRY(calls.consume(part.move->to, *overlap, packed));
  }
  return {};
}

}  // namespace

Status write_parts(const Plan& plan, const Lane& lane, std::span<const Part> parts, View buffer, Writer& writer,
                   bool wants_crc32, std::vector<PartChecksum>& checksums) {
  std::vector<WriteOp> ops;
  ops.reserve(parts.size());
  for (const Part& part : parts) {
    const Segment& segment = lane.segments[part.move->segment];
    bool literal = part.move->mode == Move::kLiteral;
    View bytes = literal ? segment.literal : buffer.subspan(part.out_at, part.out_bytes);
    uint64_t skip = literal ? 0 : bytes_in(part.geometry->out, part.range.first);
    if (plan.options.checksums) checksums.push_back(checksum_of(bytes, wants_crc32));
    if (!bytes.empty()) ops.push_back({segment.offset + skip, bytes});
  }
  return ops.empty() ? Status{} : writer.write(ops);
}

void store_part(const Plan& plan, const Part& part, View buffer) {
  if (part.direct || part.range.count == 0) return;
  View values = buffer.subspan(part.out_at, part.out_bytes);
  if (part.geometry->line) {
    const auto& place = part.geometry->to->place;
    std::ranges::copy(values,
                      reinterpret_cast<std::byte*>(place.offset) + bytes_in(part.geometry->out, part.range.first));
    return;
  }
  store_region(plan, part, part.box, values.data());
}

Status consume_part(const Plan& plan, const Part& part, View buffer, const Calls& calls) {
  if (!calls.consume) return {};
  return consume_region(plan, part, part.box, buffer.subspan(part.out_at, part.out_bytes), calls);
}

Status stream_part(const Plan& plan, const Lane& lane, const Part& part, Store& store, MutableView buffer,
                   Writer* writer, const Calls& calls, std::vector<PartChecksum>& checksums) {
  const auto& g = *part.geometry;
  const Source& source = part.sources.front();
  const Piece& piece = *source.piece;
  bool big_endian = plan.from.encoding(piece.encoding).big_endian;
  Box chunk = chunk_box(piece);
  Strided target{g.box, c_strides(g.box.extent)};
  size_t in_size = dtype_row(g.in).block_bytes, out_size = dtype_row(g.out).block_bytes;
  auto slab = buffer.subspan(part.in_at, part.in_bytes), out = buffer.subspan(part.out_at, part.out_bytes);
  auto input = buffer.subspan(source.scratch_at, source.scratch_bytes);
  return decode_piece(plan, store, piece, slab, input, [&](uint64_t first, View values) -> Result<bool> {
    uint64_t count = values.size() / in_size;
    if (big_endian) byteswap(slab.first(values.size()), swap_unit_bytes(g.in));
    if (g.in != g.out) SHARDWRIGHT_TRY(convert(g.in, values, g.out, out.first(count * out_size)));
    View ready = out.first(count * out_size);
    for (const Box& box : boxes_of_range(chunk, first, count)) {
      auto wanted = box.rank() == 0 ? std::optional(box) : intersect(box, piece.box);
      if (!wanted) continue;
      Strided held{chunk, c_strides(chunk.extent)};
      View from =
          ready.subspan(static_cast<uint64_t>(held.offset_of(box.start) - static_cast<int64_t>(first)) * out_size);
      if (writer == nullptr) {
        Bytes rows;
        View region = from.first(box.elements() * out_size);  // boxes of a range are contiguous in it
        if (*wanted != box) {                                 // an edge chunk: pack what is inside
          rows.resize(wanted->elements() * out_size);
          copy_strided(*wanted, {box, c_strides(box.extent)}, from.data(), {*wanted, c_strides(wanted->extent)},
                       rows.data(), out_size);
          region = rows;
        }
        store_region(plan, part, *wanted, region.data());
        if (calls.consume) SHARDWRIGHT_TRY(consume_region(plan, part, *wanted, region, calls));
        continue;
      }
      std::vector<WriteOp> ops;
      uint64_t base = lane.segments[part.move->segment].offset;
      for_each_run(*wanted, {box, c_strides(box.extent)}, target, [&](int64_t at, int64_t to, int64_t elements) {
        View run = from.subspan(static_cast<uint64_t>(at) * out_size, static_cast<uint64_t>(elements) * out_size);
        if (plan.options.checksums) checksums.push_back(checksum_of(run, true));
        ops.push_back({base + static_cast<uint64_t>(to) * out_size, run});
      });
      SHARDWRIGHT_TRY(writer->write(ops));
    }
    return true;
  });
}

}  // namespace shardwright
