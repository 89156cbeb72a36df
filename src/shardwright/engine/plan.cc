#include "shardwright/engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "shardwright/base/text.h"
#include "shardwright/engine/regions.h"
#include "shardwright/engine/side_by_side.h"
#include "shardwright/engine/task.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

constexpr uint64_t kLeastPart = 64 * KiB;
/// A budget below this cannot hold even small parts.
constexpr uint64_t kLeastBudget = 1 * MiB;

class Planner {
 public:
  Planner(const Catalog& from, const Catalog& to, std::span<const TensorId> origin, const PlanOptions& options,
          uint64_t part_bytes)
      : origin_(origin) {
    plan_.from = from;
    plan_.to = to;
    plan_.options = options;
    auto cores = static_cast<int>(std::thread::hardware_concurrency());
    plan_.workers = options.threads > 0 ? options.threads : std::clamp(cores, 2, 4);
    // Every worker holds one task, and the next one may be granted while an ordered append or a consumer waits.
    plan_.part_limit = std::min(part_bytes, options.memory_bytes / static_cast<uint64_t>(plan_.workers + 1));
    plan_.part_limit = std::max<uint64_t>(plan_.part_limit / kLeastPart * kLeastPart, kLeastPart);
  }

  Status check_budget() const {
    if (plan_.options.memory_bytes >= kLeastBudget) return {};
    return fail(Code::kResourceExhausted, "the memory budget is too small for any plan")
        .with_found(format_bytes(plan_.options.memory_bytes))
        .with_expected("at least " + format_bytes(kLeastBudget));
  }

  /// Of what is read; others may be of any kind.
  Status decoders() {
    for (TensorId to = 0; to < plan_.to.size(); ++to) {
      TensorId id = origin_.empty() ? to : origin_[to];
      if (plan_.from.flat(id)) continue;
      for (const Piece& piece : plan_.from.pieces(id)) {
        if (piece.encoding < plan_.decode_windows.size() && plan_.decode_windows[piece.encoding] != kUnknown) continue;
        plan_.decode_windows.resize(std::max<size_t>(plan_.decode_windows.size(), piece.encoding + 1), kUnknown);
        auto& window = plan_.decode_windows[piece.encoding];
        const auto& encoding = plan_.from.encoding(piece.encoding);
        window = 0;
        if (encoding.chain.empty()) continue;
        auto decoder = make_decoder(encoding.chain, encoding.decoded_bytes);
        if (!decoder.ok()) return std::move(decoder.error()).at_tensor(std::string(plan_.from.spec(id).name));
        window = (*decoder)->window_bytes();
      }
    }
    return {};
  }

  /// Adds the moves that fill one tensor, or one segment of a file.
  Status add(Lane& lane, TensorId to, uint32_t segment, bool consumer) {
    TensorId from = origin_.empty() ? to : origin_[to];
    auto source = plan_.from.spec(from), target = plan_.to.spec(to);
    if (!std::ranges::equal(source.shape, target.shape))
      return fail(Code::kInvalidArgument, "shapes differ")
          .at_tensor(std::string(target.name))
          .with_found(shape_text(source.shape))
          .with_expected(shape_text(target.shape));
    Move move{from, to, segment, 0, Move::kRegion};
    bool files = !lane.segments.empty();
    if (files && lane.segments[segment].piece != kWholeTensor) {
      auto piece = plan_.to.pieces(to)[lane.segments[segment].piece];
      if (!plan_.to.encoding(piece.encoding).chain.empty()) move.mode = Move::kEncode;
    }
    std::shared_ptr<PieceIndex> pieces;
    if (needs_pieces(plan_, lane, move)) {
      pieces = std::make_shared<PieceIndex>(plan_.from, from);
      SHARDWRIGHT_TRY(check_pieces(*pieces, source));
    }
    auto geometry = move_geometry(plan_, lane, move, pieces.get());
    if (geometry.in != geometry.out && !can_convert(geometry.in, geometry.out))
      return fail(Code::kUnsupported,
                  fmt::format("no conversion from {} to {}", dtype_row(geometry.in).name, dtype_row(geometry.out).name))
          .at_tensor(std::string(source.name));
    bool scatters =
        !files || (plan_.objects[lane.object].size != kUnknown && lane.segments[segment].piece == kWholeTensor);
    uint32_t together = pieces && move.mode == Move::kRegion && scatters ? stream(*pieces, geometry, consumer) : 0;
    if (together > 0) {
      move.mode = Move::kStream;
      move.source_pieces = together;
      for (uint32_t i = 0; i < pieces->all().size(); i += together) {
        move.source_piece = i;
        lane.moves.push_back(move);
      }
    } else {
      lane.moves.push_back(move);
    }
    count(lane, geometry, pieces.get(), from);
    return {};
  }

  Result<Plan> finish() {
    auto& summary = plan_.summary;
    summary.objects = plan_.objects.size();
    summary.reread = distinct_ == 0 ? 1.0 : static_cast<double>(summary.read_bytes) / static_cast<double>(distinct_);
    summary.excess = needed_ == 0 ? 1.0 : static_cast<double>(distinct_) / needed_;
    for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
      if (!irregular_) break;  // flat moves are cut to the limit; only boxes and codecs need to be asked
      TaskCutter cutter(plan_, lane);
      while (auto task = cutter.next()) summary.need_bytes = std::max(summary.need_bytes, task->need_bytes);
    }
    summary.need_bytes = std::max(summary.need_bytes, largest_part_);
    if (summary.need_bytes > plan_.options.memory_bytes)
      return fail(Code::kResourceExhausted, "the memory budget is too small for this plan")
          .with_found(format_bytes(plan_.options.memory_bytes))
          .with_expected(fmt::format("at least {} ({} bytes)", format_bytes(summary.need_bytes), summary.need_bytes))
          .with_hint(fmt::format("--memory {}", format_bytes_exact(summary.need_bytes)));
    return std::move(plan_);
  }

  Plan& plan() { return plan_; }

 private:
  static std::string format_bytes_exact(uint64_t bytes) { return fmt::format("{}MiB", (bytes + MiB - 1) / MiB); }

  /// What the engine takes for granted of a tensor's pieces.
  Status check_pieces(const PieceIndex& pieces, const Catalog::Spec& source) const {
    auto name = source.name;
    if (pieces.all().empty() && source.elements() > 0)
      return fail(Code::kCorrupt, "tensor has no stored bytes").at_tensor(std::string(name));
    DType stored = pieces.all().empty() ? DType::kU8 : plan_.from.encoding(pieces.all().front().encoding).stored;
    for (const auto& piece : pieces.all()) {
      const auto& encoding = plan_.from.encoding(piece.encoding);
      bool readable = piece.place.site == Place::kExtent || piece.place.site == Place::kLiteral;
      if (!readable && !encoding.chain.empty())
        return fail(Code::kUnsupported, "encoded bytes must lie in an object").at_tensor(std::string(name));
      if (piece.place.site == Place::kCall && pieces.all().size() > 1)
        return fail(Code::kUnsupported, "a producer must make the whole tensor").at_tensor(std::string(name));
      if (encoding.stored != stored ||
          encoding.big_endian != plan_.from.encoding(pieces.all().front().encoding).big_endian)
        return fail(Code::kUnsupported, "its pieces are stored in different dtypes or byte orders")
            .at_tensor(std::string(name));
      bool strided = std::any_of(piece.strides.begin(), piece.strides.end(), [](int64_t stride) { return stride < 0; });
      if (strided && piece.place.site == Place::kExtent)
        return fail(Code::kUnsupported, "stored with negative strides").at_tensor(std::string(name));
    }
    return {};
  }

  /// Encoded pieces that do not fit a part are decoded once and scattered, one by one where the target takes boxes in any order, else a row of the
  /// grid side by side. Returns how many together; 0: parts are gathered, and decode what they cut.
  uint32_t stream(const PieceIndex& pieces, const Geometry& geometry, bool consumer) const {
    auto encoded = [&](const Piece& piece) { return !plan_.from.encoding(piece.encoding).chain.empty(); };
    if (pieces.all().empty() || !std::ranges::all_of(pieces.all(), encoded)) return 0;
    // A chunk that reaches beyond the tensor would be scattered beyond it.
    auto within = [&](const Piece& piece) { return geometry.box.contains(piece.box); };
    if (!std::ranges::all_of(pieces.all(), within)) return 0;
    bool one = pieces.all().size() == 1;
    if (!one && plan_.options.checksums) return 0;  // one running sum for each tensor
    // A slab that ends inside a row of chunks would decode those chunks again.
    auto rows = static_cast<uint64_t>(pieces.all().front().box.extent.empty() ? 1 : pieces.all().front().box.extent[0]);
    bool again = geometry.cut.parts() > 1 && (geometry.cut.outer > 1 || geometry.cut.step % rows != 0);
    if (!again) return 0;
    return one || !consumer || in_c_order(pieces, geometry.box) ? 1 : side_by_side(pieces, geometry);
  }

  /// Chunks in a row of the grid, when every row is whole and its chunks can be open at once; else 0.
  uint32_t side_by_side(const PieceIndex& pieces, const Geometry& geometry) const {
    const auto& all = pieces.all();
    const Box& box = geometry.box;
    auto starts_with = [](const Piece& a, const Piece& b) {
      return a.box.start[0] == b.box.start[0] && a.box.extent[0] == b.box.extent[0];
    };
    size_t count = 1;
    while (count < all.size() && starts_with(all[count], all[0])) ++count;
    uint64_t row = box.elements() / static_cast<uint64_t>(box.extent[0]);
    bool fits = dtype_row(geometry.in).block_elems == 1 && row <= geometry.slab_elements && count <= kMostSideBySide;
    if (!fits || all.size() % count != 0) return 0;
    uint64_t most = 0;  // what the largest row of chunks needs
    for (size_t i = 0; i < all.size(); i += count) {
      uint64_t elements = 0, held = 0;
      for (size_t j = i; j < i + count && starts_with(all[j], all[i]); ++j) {
        elements += all[j].box.elements();
        held += kSideBytes + plan_.decode_windows[all[j].encoding];
      }
      if (elements != row * static_cast<uint64_t>(all[i].box.extent[0])) return 0;
      most = std::max(most, held);
    }
    return 2 * plan_.part_limit + most <= plan_.options.memory_bytes ? static_cast<uint32_t>(count) : 0;
  }

  /// Whether the pieces are whole rows, so that one after the other they are the tensor in C order.
  static bool in_c_order(const PieceIndex& pieces, const Box& tensor) {
    return std::ranges::all_of(pieces.all(), [&](const Piece& piece) {
      return tensor.rank() > 0 &&
             std::equal(piece.box.extent.begin() + 1, piece.box.extent.end(), tensor.extent.begin() + 1);
    });
  }

  void count(const Lane& lane, const Geometry& geometry, const PieceIndex* pieces, TensorId from) {
    auto& summary = plan_.summary;
    ++summary.tensors;
    auto elements = geometry.box.elements();
    uint64_t in = bytes_of_elements(geometry.in, elements).value_or(0),
             out = bytes_of_elements(geometry.out, elements).value_or(0);
    summary.work_bytes += in;
    if (!lane.segments.empty()) summary.written_bytes += out;
    summary.parts += geometry.cut.parts();
    uint64_t largest = std::min(geometry.cut.largest(), elements);
    auto part_in = bytes_of_elements(geometry.in, largest).value_or(in),
         part_out = bytes_of_elements(geometry.out, largest).value_or(out);
    if (!geometry.line || geometry.in != geometry.out || !geometry.to)
      largest_part_ =
          std::max(largest_part_, round_up(part_in, 64) + (geometry.in == geometry.out ? 0 : round_up(part_out, 64)));
    if (pieces == nullptr) {
      summary.read_bytes += in;
      distinct_ += in;
      needed_ += static_cast<double>(in);
      return;
    }
    irregular_ = true;
    for (const Piece* cut : pieces->cutting(geometry.box)) {
      const Piece& piece = *cut;
      if (piece.place.site != Place::kExtent) continue;
      if (plan_.from.encoding(piece.encoding).chain.empty()) {
        auto overlap = *intersect(piece.box, geometry.box);
        uint64_t wanted = bytes_of_elements(geometry.in, overlap.elements()).value_or(0);
        distinct_ += wanted;
        needed_ += static_cast<double>(wanted);
        summary.read_bytes += wanted;
        if (lane.segments.empty()) summary.gap_bytes += gap_bytes(piece, overlap, geometry);
        continue;
      }
      distinct_ += piece.place.length;
      auto share = static_cast<double>(intersect(piece.box, geometry.box)->elements());
      needed_ += static_cast<double>(piece.place.length) * share / static_cast<double>(piece.box.elements());
      bool streamed = !lane.moves.empty() && lane.moves.back().mode == Move::kStream && lane.moves.back().from == from;
      summary.read_bytes +=
          piece.place.length * (streamed ? 1 : times_cut(geometry, *intersect(piece.box, geometry.box)));
    }
  }

  /// What stores read between the runs of a part of a piece.
  static uint64_t gap_bytes(const Piece& piece, const Box& overlap, const Geometry& geometry) {
    if (overlap.empty() || overlap == piece.box) return 0;
    uint64_t gaps = 0;
    int64_t end = -1;
    for_each_run(overlap, layout_of(piece), {geometry.box, c_strides(geometry.box.extent)},
                 [&](int64_t from, int64_t, int64_t elements) {
                   uint64_t gap = end < 0 || from < end ? 0 : bytes_in(geometry.in, static_cast<uint64_t>(from - end));
                   if (gap <= kGapBytes) gaps += gap;
                   end = from + elements;
                 });
    return gaps;
  }

  /// How many parts cut a box: each decodes an encoded piece again.
  static uint64_t times_cut(const Geometry& geometry, const Box& box) {
    const Cut& cut = geometry.cut;
    if (cut.parts() <= 1 || box.rank() == 0) return 1;
    if (cut.outer > 1)
      return std::max<uint64_t>(1, cut.parts() * box.elements() / std::max<uint64_t>(1, geometry.box.elements()));
    auto first = static_cast<uint64_t>(box.start[0] - geometry.box.start[0]) / cut.step;
    auto last = static_cast<uint64_t>(box.start[0] + box.extent[0] - 1 - geometry.box.start[0]) / cut.step;
    return last - first + 1;
  }

  std::span<const TensorId> origin_;
  Plan plan_;
  uint64_t distinct_ = 0, largest_part_ = 0;
  double needed_ = 0;
  bool irregular_ = false;
};

/// Smaller parts need less of what goes with them (scratch for chunks, conversions): tried before a plan is refused.
template <class Make>
Result<Plan> fit_from(uint64_t part_bytes, const PlanOptions& options, const Make& make) {
  while (true) {
    auto plan = make(part_bytes);
    if (plan.ok() || plan.error().code != Code::kResourceExhausted || part_bytes <= kLeastPart) return plan;
    part_bytes = std::max(kLeastPart, std::min(part_bytes, options.memory_bytes) / 2);
  }
}

/// Chunks side by side that reach over several parts are decoded for each of them: then parts are as large as the budget allows.
template <class Make>
Result<Plan> fit(const PlanOptions& options, const Make& make) {
  auto plan = fit_from(options.part_bytes, options, make);
  if (!plan.ok() || plan->summary.reread <= 1 || options.memory_bytes <= options.part_bytes) return plan;
  auto larger = fit_from(options.memory_bytes, options, make);
  return larger.ok() && larger->summary.reread < plan->summary.reread ? std::move(larger) : std::move(plan);
}

Result<Plan> write_plan(const Catalog& from, const Draft& draft, std::span<const TensorId> origin,
                        const PlanOptions& options, uint64_t part_bytes) {
  PlanOptions wanted = options;
  wanted.checksums = options.checksums || draft.wants_crc32();
  Planner planner(from, draft.target(), origin, wanted, part_bytes);
  SHARDWRIGHT_TRY(planner.check_budget());
  SHARDWRIGHT_TRY(planner.decoders());
  Plan& plan = planner.plan();
  plan.objects.assign(draft.objects().begin(), draft.objects().end());
  plan.lanes.reserve(plan.objects.size());
  for (ObjectId object = 0; object < plan.objects.size(); ++object) {
    Lane& lane = plan.lanes.emplace_back();
    lane.object = object;
    lane.segments = draft.segments(object);
    lane.moves.reserve(lane.segments.size());
    for (uint32_t i = 0; i < lane.segments.size(); ++i) {
      const auto& segment = lane.segments[i];
      if (segment.type == Segment::kLate) continue;
      if (segment.type == Segment::kLiteral) {
        lane.moves.push_back({kNoTensor, kNoTensor, i, 0, Move::kLiteral});
        plan.summary.written_bytes += segment.literal.size();
        continue;
      }
      SHARDWRIGHT_TRY(planner.add(lane, segment.tensor, i, /*consumer=*/false));
    }
  }
  return planner.finish();
}

Result<Plan> load_plan(const Catalog& from, const Catalog& to, std::span<const TensorId> origin,
                       const PlanOptions& options, uint64_t part_bytes) {
  Planner planner(from, to, origin, options, part_bytes);
  SHARDWRIGHT_TRY(planner.check_budget());
  SHARDWRIGHT_TRY(planner.decoders());
  Plan& plan = planner.plan();
  // Source order: by the place of the first piece, so that files are read from front to back.
  std::vector<std::pair<std::pair<ObjectId, uint64_t>, TensorId>> order;
  order.reserve(to.size());
  for (TensorId id = 0; id < to.size(); ++id) {
    if (to.same_as(id) != id) continue;  // a tie lands in one buffer
    TensorId source = origin.empty() ? id : origin[id];
    std::pair<ObjectId, uint64_t> key{0, 0};
    if (auto flat = from.flat(source)) {
      key = {flat->place.object, flat->place.offset};
    } else if (from.piece_count(source) > 0) {
      auto place = from.pieces(source).front().place;
      key = {place.object, place.offset};
    }
    order.push_back({key, id});
  }
  std::sort(order.begin(), order.end());
  Lane& lane = plan.lanes.emplace_back();
  lane.moves.reserve(order.size());
  for (const auto& [key, id] : order) {
    auto flat = to.flat(id);
    auto site = flat ? flat->place.site : to.piece_count(id) > 0 ? to.pieces(id).front().place.site : Place::kExtent;
    bool memory = site == Place::kMemory;
    std::vector<Region> regions;
    if (!flat && (memory || site == Place::kCall)) regions = regions_of(from, origin.empty() ? id : origin[id], to, id);
    if (regions.empty()) SHARDWRIGHT_TRY(planner.add(lane, id, kWholeTensor, /*consumer=*/!memory));
    for (Region& region : regions) {
      lane.regions.push_back(std::move(region));
      auto number = static_cast<uint32_t>(lane.regions.size() - 1);
      SHARDWRIGHT_TRY(planner.add(lane, id, number, /*consumer=*/!memory));
    }
  }
  return planner.finish();
}

}  // namespace

Result<Plan> plan_write(const Catalog& from, const Draft& draft, std::span<const TensorId> origin,
                        const PlanOptions& options) {
  return fit(options, [&](uint64_t part_bytes) { return write_plan(from, draft, origin, options, part_bytes); });
}

Result<Plan> plan_load(const Catalog& from, const Catalog& to, std::span<const TensorId> origin,
                       const PlanOptions& options) {
  return fit(options, [&](uint64_t part_bytes) { return load_plan(from, to, origin, options, part_bytes); });
}

}  // namespace shardwright
