#include "shardwright/engine/task.h"

#include <algorithm>
#include <map>

#include "shardwright/engine/side_by_side.h"

namespace shardwright {
namespace {

constexpr size_t kMaxPartsPerTask = 4096;
/// What is dealt out to several places goes through so much at a time: it is still in the processor's cache when it is copied.
constexpr uint64_t kDealtBytes = 1 * MiB;
/// Encoded bytes are read this many at a time.
constexpr uint64_t kReadAhead = 256 * KiB;

/// Most elements of a part under the plan's limit.
uint64_t most_elements(uint64_t bytes, DType in, DType out) {
  auto bits = [](DType dtype) { return 8.0 * dtype_row(dtype).block_bytes / dtype_row(dtype).block_elems; };
  double each = bits(in) + (in == out ? 0 : bits(out));
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(bytes) * 8 / each));
}

}  // namespace

void copy_values(DType dtype, const Box& part, const Strided& from_layout, const std::byte* from,
                 const Strided& to_layout, std::byte* to) {
  const auto& row = dtype_row(dtype);
  if (row.block_elems == 1) return copy_strided(part, from_layout, from, to_layout, to, row.block_bytes);
  auto bytes = [&](int64_t elements) { return bytes_in(dtype, static_cast<uint64_t>(elements)); };
  for_each_run(part, from_layout, to_layout, [&](int64_t at, int64_t into, int64_t elements) {
    std::copy_n(from + bytes(at), bytes(elements), to + bytes(into));
  });
}

PieceIndex::PieceIndex(const Catalog& catalog, TensorId tensor) : pieces_(catalog.pieces(tensor)) {
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.box.start < b.box.start; });
  auto last =
      std::unique(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.box == b.box; });
  pieces_.erase(last, pieces_.end());
  for (const auto& piece : pieces_)
    if (!piece.box.extent.empty()) longest_ = std::max(longest_, piece.box.extent[0]);
}

std::vector<const Piece*> PieceIndex::cutting(const Box& region) const {
  std::vector<const Piece*> out;
  auto first = pieces_.begin(), last = pieces_.end();
  if (region.rank() > 0) {
    auto by_start = [](const Piece& piece, int64_t value) { return piece.box.start[0] < value; };
    first = std::lower_bound(first, last, region.start[0] - longest_, by_start);
    last = std::lower_bound(first, last, region.start[0] + region.extent[0], by_start);
  }
  for (auto at = first; at != last; ++at)
    if (region.rank() == 0 || intersect(at->box, region)) out.push_back(&*at);
  return out;
}

Box streamed_box(const Part& part) {
  const Box& first = part.sources.front().piece->box;
  if (part.sources.size() == 1) return first;
  Box rows = part.geometry->box;
  rows.start[0] = first.start[0];
  rows.extent[0] = first.extent[0];
  return rows;
}

bool is_produced(const Plan& plan, const Part& part) {
  if (part.move->mode == Move::kLiteral || plan.from.piece_count(part.move->from) == 0) return false;
  const Place& place = part.geometry->from ? part.geometry->from->place : part.pieces->all().front().place;
  return place.site == Place::kCall;
}

bool needs_pieces(const Plan& plan, const Lane& lane, const Move& move) {
  if (!plan.from.flat(move.from)) return true;
  if (!lane.segments.empty()) return lane.segments[move.segment].piece != kWholeTensor;
  return move.segment != kWholeTensor && !lane.regions[move.segment].piece;
}

namespace {

Box target_box(const Plan& plan, const Lane& lane, const Move& move) {
  bool files = !lane.segments.empty();
  uint32_t part = files ? lane.segments[move.segment].piece : move.segment;
  if (part == kWholeTensor) return Box::whole(plan.to.spec(move.to).shape);
  return files ? plan.to.pieces(move.to)[part].box : lane.regions[part].box;
}

/// Both sides of a region that is one stretch on both.
void narrow_to_region(const Plan& plan, const Lane& lane, const Move& move, Geometry& g) {
  const Region& region = lane.regions[move.segment];
  auto shape = plan.to.spec(move.to).shape;
  auto before = static_cast<uint64_t>(Strided{Box::whole(shape), c_strides(shape)}.offset_of(region.box.start));
  g.from->place.offset += bytes_in(g.from->stored, before);
  g.from->place.length = bytes_in(g.from->stored, region.box.elements());
  g.piece = *region.piece;
  const Piece piece = plan.to.pieces(move.to)[g.piece];
  g.to = Catalog::Flat{piece.place, plan.to.encoding(piece.encoding).stored};
}

/// Where a move into memory, or to a consumer, has one raw stretch to go to.
void find_flat_target(const Plan& plan, const Lane& lane, const Move& move, Geometry& g) {
  if (move.segment == kWholeTensor)
    g.to = plan.to.flat(move.to);
  else if (g.from)
    narrow_to_region(plan, lane, move, g);
  if (g.to && g.to->place.site != Place::kMemory) g.to.reset();
  if (g.to) g.out = g.to->stored;
}

}  // namespace

Geometry move_geometry(const Plan& plan, const Lane& lane, const Move& move, const PieceIndex* pieces) {
  const Piece* first = pieces == nullptr || pieces->all().empty() ? nullptr : &pieces->all().front();
  const bool encoded = first != nullptr && !plan.from.encoding(first->encoding).chain.empty();
  Geometry g;
  const Segment* segment = lane.segments.empty() ? nullptr : &lane.segments[move.segment];
  bool whole = (segment != nullptr ? segment->piece : move.segment) == kWholeTensor;
  g.box = target_box(plan, lane, move);
  g.in = g.out = plan.to.spec(move.to).dtype;
  if (segment != nullptr && !whole && move.mode == Move::kRegion) {
    Strided layout = layout_of(plan.to.pieces(move.to)[segment->piece]);
    if (!layout.is_c_order()) g.scattered = std::move(layout);
  }
  if (pieces == nullptr) {
    g.from = plan.from.flat(move.from);
    g.in = g.from->stored;
  } else if (first != nullptr) {
    g.in = plan.from.encoding(first->encoding).stored;
  }
  if (segment == nullptr) find_flat_target(plan, lane, move, g);
  g.line = (whole || g.to) && (segment != nullptr || g.to) && g.from && g.from->place.site != Place::kCall;
  auto elements = static_cast<int64_t>(g.box.elements());
  std::span<const int64_t> extents = g.line ? std::span(&elements, 1) : std::span<const int64_t>(g.box.extent);
  uint64_t block = std::max(dtype_row(g.in).block_elems, dtype_row(g.out).block_elems);
  // Slabs that end where rows of chunks end decode each chunk once.
  uint64_t align = encoded && g.box.rank() > 0 ? static_cast<uint64_t>(std::max<int64_t>(1, first->box.extent[0])) : 1;
  g.task_bytes = plan.part_limit;
  if (segment == nullptr && !g.line && !encoded && plan.to.piece_count(move.to) > 1)
    g.task_bytes = std::min(g.task_bytes, kDealtBytes);
  g.slab_elements = std::max<uint64_t>(block, most_elements(g.task_bytes, g.in, g.out) / block * block);
  g.cut =
      move.mode == Move::kStream ? Cut{1, 1, g.box.elements(), 1} : cut_slabs(extents, g.slab_elements, block, align);
  return g;
}

bool TaskCutter::done() const { return move_ >= plan_.lanes[lane_].moves.size(); }

/// Makes geometry for the move at hand, once.
bool TaskCutter::start_move() {
  const auto& lane = plan_.lanes[lane_];
  if (move_ >= lane.moves.size()) return false;
  const Move& move = lane.moves[move_];
  if (geometry_ || move.mode == Move::kLiteral) return true;
  if (needs_pieces(plan_, lane, move)) pieces_ = std::make_shared<PieceIndex>(plan_.from, move.from);
  geometry_ = std::make_shared<Geometry>(move_geometry(plan_, lane, move, pieces_.get()));
  return true;
}

namespace {

/// Bytes from the first to the last element of `overlap` in the file, inclusive. Strides are not negative (checked when planned).
uint64_t span_bytes(const Piece& piece, const Box& overlap, DType stored) {
  Strided held = layout_of(piece);
  auto last = overlap.start;
  for (size_t d = 0; d < last.size(); ++d) last[d] += overlap.extent[d] - 1;
  return bytes_in(stored, static_cast<uint64_t>(held.offset_of(last) - held.offset_of(overlap.start) + 1));
}

/// In how many runs the overlap lies in the piece and in the region: one can be read straight into place.
uint64_t count_runs(const Piece& piece, const Box& overlap, const Box& region) {
  Strided held = layout_of(piece);
  uint64_t runs = 0;
  for_each_run(overlap, held, {region, c_strides(region.extent)}, [&](int64_t, int64_t, int64_t) { ++runs; });
  return runs;
}

/// Finds the pieces that a region cuts, and room for those that cannot be read straight into place. Encoded pieces are decoded one after
/// the other through the same room.
void place_sources(const Plan& plan, Part& part, uint64_t& at) {
  uint64_t decode_bytes = 0;
  for (const Piece* piece : part.pieces->cutting(part.box)) {
    Source source{piece, *intersect(piece->box, part.box), at, 0};
    const auto& encoding = plan.from.encoding(piece->encoding);
    if (!encoding.chain.empty()) {
      source.scratch_bytes = round_up(std::min(encoding.decoded_bytes, plan.part_limit), 64) + kReadAhead;
      decode_bytes = std::max(decode_bytes, source.scratch_bytes + plan.decode_windows[piece->encoding]);
    } else if (piece->place.site == Place::kExtent) {
      // Dense in the file: read in one go and scatter. Sparse (a few columns of many): read run by run.
      uint64_t runs = count_runs(*piece, source.overlap, part.box);
      uint64_t span = span_bytes(*piece, source.overlap, encoding.stored);
      uint64_t wanted = bytes_in(encoding.stored, source.overlap.elements());
      if (runs > 1 && span <= 2 * wanted && (span - wanted) / (runs - 1) <= kGapBytes)
        source.scratch_bytes = round_up(span, 64);
      at += source.scratch_bytes;
    }
    part.sources.push_back(std::move(source));
  }
  for (auto& source : part.sources)
    if (!plan.from.encoding(source.piece->encoding).chain.empty()) source.scratch_at = at;
  at += decode_bytes;
}

/// The values of a part that goes to a file, where one piece in memory has all of them in a row, as they are wanted.
View lent_values(const Plan& plan, const Part& part) {
  const auto& g = *part.geometry;
  if (plan.objects.empty() || g.in != g.out || part.range.count == 0) return {};
  auto at = [&](const Place& place, uint64_t elements) {
    return View(reinterpret_cast<const std::byte*>(place.offset) + bytes_in(g.in, elements), part.in_bytes);
  };
  if (g.line) return g.from->place.site == Place::kMemory ? at(g.from->place, part.range.first) : View();
  if (!part.pieces) return {};
  auto cut = part.pieces->cutting(part.box);
  if (cut.size() != 1) return {};
  const Piece& piece = *cut.front();
  bool as_wanted = piece.place.site == Place::kMemory && !plan.from.encoding(piece.encoding).big_endian;
  if (!as_wanted || !piece.box.contains(part.box)) return {};
  Strided held = layout_of(piece);
  if (!Strided{part.box, held.strides}.is_c_order()) return {};
  return at(piece.place, static_cast<uint64_t>(held.offset_of(part.box.start)));
}

}  // namespace

Part region_part(const Plan& plan, const Move& move, std::shared_ptr<const Geometry> geometry,
                 std::shared_ptr<const PieceIndex> pieces, Range range, uint64_t& at) {
  Part part;
  part.move = &move;
  part.geometry = std::move(geometry);
  part.pieces = std::move(pieces);
  part.range = range;
  const auto& g = *part.geometry;
  if (!g.line) part.box = range.count == 0 ? g.box : boxes_of_range(g.box, range.first, range.count).front();
  part.in_bytes = bytes_in(g.in, range.count);
  part.out_bytes = bytes_in(g.out, range.count);
  part.direct = g.line && g.in == g.out && g.from->place.site == Place::kExtent && g.to;
  part.lent = lent_values(plan, part);
  if (part.direct || !part.lent.empty()) return part;
  part.in_at = part.out_at = at;
  at += round_up(part.in_bytes, 64);
  if (g.in != g.out) {
    part.out_at = at;
    at += round_up(part.out_bytes, 64);
  }
  if (part.pieces && range.count > 0) place_sources(plan, part, at);
  return part;
}

/// Slab in, slab out, then what the decoder and its input take.
Part TaskCutter::stream_part(uint64_t& at) const {
  const auto& g = *geometry_;
  Part part;
  part.geometry = geometry_;
  part.pieces = pieces_;
  part.range = g.cut.range(0);
  part.in_bytes = bytes_in(g.in, g.slab_elements);
  part.out_bytes = bytes_in(g.out, g.slab_elements);
  part.in_at = part.out_at = at;
  at += round_up(part.in_bytes, 64);
  if (g.in != g.out) {
    part.out_at = at;
    at += round_up(part.out_bytes, 64);
  }
  const Move& move = plan_.lanes[lane_].moves[move_];
  for (uint32_t i = 0; i < move.source_pieces; ++i) {
    const Piece& piece = pieces_->all()[move.source_piece + i];
    uint64_t scratch = move.source_pieces == 1 ? kReadAhead : kSideBytes;
    part.sources.push_back({&piece, piece.box, at, scratch});
    at += scratch + plan_.decode_windows[piece.encoding];
  }
  return part;
}

Part TaskCutter::cut_part(uint64_t& at) const {
  const auto& lane = plan_.lanes[lane_];
  const Move& move = lane.moves[move_];
  Part part;
  switch (move.mode) {
    case Move::kLiteral: break;
    case Move::kRegion: part = region_part(plan_, move, geometry_, pieces_, geometry_->cut.range(part_), at); break;
    case Move::kStream: part = stream_part(at); break;
    case Move::kEncode: {
      // Slabs one after the other through the same buffer: room for the largest.
      part.geometry = geometry_;
      part.pieces = pieces_;
      uint64_t end = at;
      for (uint64_t slab = 0; slab < geometry_->cut.parts(); ++slab) {
        uint64_t slab_end = at;
        (void)region_part(plan_, move, geometry_, pieces_, geometry_->cut.range(slab), slab_end);
        end = std::max(end, slab_end);
      }
      part.reserve_at = end;
      part.in_bytes = bytes_in(geometry_->in, geometry_->box.elements());
      at = end + encode_reserve(plan_, lane.segments[move.segment]);
      break;
    }
  }
  part.move = &move;
  part.index = part_;
  return part;
}

std::optional<Task> TaskCutter::next() {
  Task task;
  task.lane = lane_;
  uint64_t batched = 0;
  while (start_move()) {
    const Move& move = plan_.lanes[lane_].moves[move_];
    bool alone = move.mode == Move::kStream || move.mode == Move::kEncode;
    uint64_t parts = move.mode == Move::kRegion ? geometry_->cut.parts() : 1;
    if (alone && !task.parts.empty()) break;
    uint64_t at = task.need_bytes;
    Part part = cut_part(at);
    uint64_t work = std::max(part.in_bytes, part.out_bytes);
    batched += work;
    uint64_t most = geometry_ ? geometry_->task_bytes : plan_.part_limit;
    bool full = at > most || batched > most || task.parts.size() >= kMaxPartsPerTask;
    if (full && !task.parts.empty()) break;
    task.need_bytes = at;
    bool streamed = move.mode == Move::kStream;
    task.work_bytes += streamed ? bytes_in(geometry_->in, streamed_box(part).elements()) : part.in_bytes;
    task.parts.push_back(std::move(part));
    if (++part_ >= parts) {
      ++move_;
      part_ = 0;
      geometry_.reset();
      pieces_.reset();
    }
    if (alone) break;
  }
  if (task.parts.empty()) return std::nullopt;
  return task;
}

uint64_t encode_reserve(const Plan& plan, const Segment& segment) {
  auto piece = plan.to.pieces(segment.tensor)[segment.piece];
  const auto& encoding = plan.to.encoding(piece.encoding);
  auto encoder = make_encoder(encoding.chain, encoding.decoded_bytes);
  uint64_t window = encoder.ok() ? (*encoder)->window_bytes() : 0;
  return window + std::min(encoded_bound(encoding.chain, encoding.decoded_bytes), plan.part_limit);
}

}  // namespace shardwright
