#include "shardwright/engine/share.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "shardwright/base/byte_reader.h"
#include "shardwright/base/checksum.h"
#include "shardwright/engine/task.h"

namespace shardwright {
namespace {

/// Where each tensor of each rank is in the whole.
class Merger {
 public:
  explicit Merger(std::span<const Catalog> by_rank) : by_rank_(by_rank) {}

  Result<Catalog> merge() {
    for (int rank = 0; rank < ranks(); ++rank)
      for (TensorId id = 0; id < by_rank_[rank].size(); ++id) {
        auto spec = by_rank_[rank].spec(id);
        auto [at, fresh] = numbers_.emplace(spec.name, holders_.size());
        if (fresh) holders_.emplace_back();
        holders_[at->second].push_back({rank, id});
      }
    for (const auto& holders : holders_) SHARDWRIGHT_TRY(add(holders));
    for (const auto& catalog : by_rank_)
      for (const auto& key : catalog.value_keys())
        if (values_.insert(key).second) builder_.set_value(key, *catalog.value(key));
    for (const auto& file : by_rank_[0].side_files()) builder_.add_side_file(file);
    auto merged = builder_.build();
    if (merged.ok() || merged.error().code != Code::kCorrupt) return merged;
    merged.error().code = Code::kInvalidArgument;  // no file says so: the ranks do
    merged.error().context.push_back("while the parts of all ranks were put together");
    return merged;
  }

 private:
  struct Holder {
    int rank;
    TensorId id;
  };
  int ranks() const { return static_cast<int>(by_rank_.size()); }

  /// By name: the tensor that a rank has the values of this one under.
  std::string_view kept_name(const Holder& holder) const {
    const Catalog& catalog = by_rank_[holder.rank];
    return catalog.spec(catalog.same_as(holder.id)).name;
  }

  Status add(const std::vector<Holder>& holders) {
    const Catalog& first = by_rank_[holders[0].rank];
    auto spec = first.spec(holders[0].id);
    SHARDWRIGHT_ASSIGN(auto added, builder_.add_tensor(spec.name, spec.dtype, spec.shape));
    TensorId kept = first.same_as(holders[0].id);
    bool alias = kept != holders[0].id;
    for (auto [rank, id] : holders) {
      auto other = by_rank_[rank].spec(id);
      if (kept_name({rank, id}) != kept_name(holders[0]))
        return fail(Code::kInvalidArgument,
                    fmt::format("ranks {} and {} tie this name differently", holders[0].rank, rank))
            .at_tensor(std::string(spec.name))
            .with_found("values of '" + std::string(kept_name({rank, id})) + "'")
            .with_expected("values of '" + std::string(kept_name(holders[0])) + "'");
      if (other.dtype != spec.dtype || !std::ranges::equal(other.shape, spec.shape))
        return fail(Code::kInvalidArgument,
                    fmt::format("ranks {} and {} have different tensors of this name", holders[0].rank, rank))
            .at_tensor(std::string(spec.name))
            .with_found(fmt::format("{} {}", dtype_row(other.dtype).name, shape_text(other.shape)))
            .with_expected(fmt::format("{} {}", dtype_row(spec.dtype).name, shape_text(spec.shape)));
      if (!alias) SHARDWRIGHT_TRY(add_pieces(rank, id));
    }
    if (alias) builder_.tie(added, numbers_.at(std::string(first.spec(kept).name)));
    return {};
  }

  Status add_pieces(int rank, TensorId id) {
    auto spec = by_rank_[rank].spec(id);
    for (Piece& piece : by_rank_[rank].pieces(id)) {
      if (spec.elements() == 0)
        piece = {Box::whole(spec.shape), piece.place, piece.encoding, {}};  // no part of nothing
      piece.place.rank = rank;
      piece.encoding = builder_.add_encoding(by_rank_[rank].encoding(piece.encoding));
      SHARDWRIGHT_TRY(builder_.add_piece(piece));
    }
    return {};
  }

  std::span<const Catalog> by_rank_;
  std::unordered_map<std::string, TensorId> numbers_;
  std::vector<std::vector<Holder>> holders_;
  std::set<std::string> values_;
  CatalogBuilder builder_;
};

}  // namespace

Result<Catalog> merge_catalogs(std::span<const Catalog> by_rank) { return Merger(by_rank).merge(); }

std::vector<std::vector<OwnedBox>> assign_writers(const Catalog& merged, int ranks) {
  std::vector<uint64_t> load(static_cast<size_t>(ranks));
  std::vector<std::vector<OwnedBox>> owned(merged.size());
  for (TensorId id = 0; id < merged.size(); ++id) {
    if (merged.same_as(id) != id) continue;
    std::map<Box, std::vector<int32_t>> holders;
    for (const Piece& piece : merged.pieces(id)) holders[piece.box].push_back(piece.place.rank);
    for (const auto& [held, who] : holders) {
      auto lighter = [&](int32_t a, int32_t b) {
        return std::pair(load[static_cast<size_t>(a)], a) < std::pair(load[static_cast<size_t>(b)], b);
      };
      OwnedBox box{held, *std::min_element(who.begin(), who.end(), lighter)};
      load[static_cast<size_t>(box.rank)] += bytes_in(merged.spec(id).dtype, box.box.elements());
      owned[id].push_back(std::move(box));
    }
  }
  return owned;
}

std::vector<std::vector<OwnedBox>> held_of(const Catalog& merged, const Selected& selected, int ranks) {
  auto writers = assign_writers(merged, ranks);
  std::vector<std::vector<OwnedBox>> held(selected.want.size());
  for (TensorId id = 0; id < selected.want.size(); ++id)
    held[id] = writers[merged.same_as(selected.origin.empty() ? id : selected.origin[id])];
  return held;
}

PartDraft::PartDraft(Draft& draft, std::vector<ObjectId> objects) : draft_(draft), numbers_(std::move(objects)) {
  for (ObjectId object : numbers_) objects_.push_back(draft.objects()[object]);
}

Bytes bytes_of_receipts(std::span<const Receipt> receipts) {
  Bytes out;
  for (const Receipt& receipt : receipts) {
    append_le(out, receipt.tensor);
    append_le(out, receipt.piece);
    append_le(out, receipt.place.object);
    append_le(out, receipt.place.offset);
    append_le(out, receipt.place.length);
    append_le(out, receipt.crc32c);
    append_le(out, receipt.crc32);
  }
  return out;
}

Result<std::vector<Receipt>> receipts_of_all(std::span<const Bytes> all, size_t objects) {
  std::vector<Receipt> out;
  for (const Bytes& bytes : all) {
    ByteReader in(bytes);
    while (!in.bad && !in.at_end()) {
      Receipt receipt;
      receipt.tensor = in.number<TensorId>();
      receipt.piece = in.number<uint32_t>();
      receipt.place = {Place::kExtent, -1, in.number<ObjectId>(), 0, 0};
      receipt.place.offset = in.number<uint64_t>();
      receipt.place.length = in.number<uint64_t>();
      receipt.crc32c = in.number<uint32_t>();
      receipt.crc32 = in.number<uint32_t>();
      in.bad = in.bad || receipt.place.object >= objects;
      out.push_back(receipt);
    }
    if (in.bad) return fail(Code::kInternal, "the receipts of a rank cannot be read");
  }
  std::ranges::stable_sort(out, {}, [](const Receipt& receipt) { return receipt.place.object; });
  return out;
}

Bytes Outline::to_bytes() const {
  Bytes out{static_cast<std::byte>(wants_crc32)};
  append_le<uint64_t>(out, objects.size());
  for (const auto& object : objects) {
    append_sized(out, object.key);
    append_le(out, object.size);
  }
  for (const auto& payload : payloads) {
    append_le(out, payload.object);
    append_le(out, payload.tensor);
    append_le(out, payload.offset);
  }
  return out;
}

Result<Outline> Outline::from_bytes(View bytes) {
  ByteReader in(bytes);
  Outline out;
  out.wants_crc32 = in.number<uint8_t>() != 0;
  for (size_t left = in.count(2 * sizeof(uint64_t)); left > 0 && !in.bad; --left) {
    std::string key(in.text());
    out.objects.push_back({std::move(key), in.number<uint64_t>()});
  }
  while (!in.bad && !in.at_end()) {
    Payload payload{in.number<ObjectId>(), in.number<TensorId>(), in.number<uint64_t>()};
    in.bad = in.bad || payload.object >= out.objects.size();
    out.payloads.push_back(payload);
  }
  if (in.bad) return fail(Code::kInternal, "the outline from rank 0 cannot be read");
  return out;
}

std::optional<Outline> outline_of(const Draft& draft) {
  Outline out;
  out.objects.assign(draft.objects().begin(), draft.objects().end());
  out.wants_crc32 = draft.wants_crc32();
  for (ObjectId object = 0; object < out.objects.size(); ++object)
    for (const Segment& segment : draft.segments(object)) {
      bool placed = segment.offset != kUnknown && segment.length != kUnknown;
      if (!placed || (segment.type == Segment::kPayload && segment.piece != kWholeTensor)) return std::nullopt;
      if (segment.type == Segment::kPayload) out.payloads.push_back({object, segment.tensor, segment.offset});
    }
  return out;
}

namespace {

/// Sum of what lies at `before` in zeros, `length` bytes in all, by which it differs from that of zeros alone: such differences add up.
template <class Combine, class Zeros>
uint32_t share_of_sum(uint32_t sum, uint64_t before, uint64_t size, uint64_t length, Combine combine, Zeros zeros) {
  uint64_t after = length - before - size;
  return combine(combine(zeros(before), sum, size), zeros(after), after) ^ zeros(length);
}

}  // namespace

std::vector<PayloadSum> sums_of_payloads(const Catalog& want, const Outline& outline,
                                         std::span<const Receipt> receipts) {
  std::vector<PayloadSum> sums(want.size());
  std::vector<const Outline::Payload*> places(want.size());
  for (const auto& payload : outline.payloads) {
    if (payload.tensor >= want.size()) continue;
    places[payload.tensor] = &payload;
    uint64_t length = want.spec(payload.tensor).nbytes();
    sums[payload.tensor] = {crc32c_of_zeros(length), outline.wants_crc32 ? crc32_of_zeros(length) : 0};
  }
  for (const Receipt& receipt : receipts) {
    if (receipt.tensor >= want.size() || places[receipt.tensor] == nullptr || receipt.place.length == 0) continue;
    uint64_t before = receipt.place.offset - places[receipt.tensor]->offset, size = receipt.place.length;
    uint64_t length = want.spec(receipt.tensor).nbytes();
    PayloadSum& sum = sums[receipt.tensor];
    sum.crc32c ^= share_of_sum(receipt.crc32c, before, size, length, crc32c_combine, crc32c_of_zeros);
    if (outline.wants_crc32)
      sum.crc32 ^= share_of_sum(receipt.crc32, before, size, length, crc32_combine, crc32_of_zeros);
  }
  return sums;
}

namespace {

/// Where `box` of a tensor lies in an object that holds the whole of it from `place.offset` on, in C order.
Piece piece_of_box(const Catalog::Spec& spec, const Box& box, Place place) {
  Piece piece{box, place, 0, {}};
  if (box.empty()) return piece;
  const Strided whole{Box::whole(spec.shape), c_strides(spec.shape)};
  auto last = box.start;
  for (size_t d = 0; d < last.size(); ++d) last[d] += box.extent[d] - 1;
  auto first = static_cast<uint64_t>(whole.offset_of(box.start));
  bool scattered = !Strided{box, whole.strides}.is_c_order();
  piece.place.offset += bytes_in(spec.dtype, first);
  piece.place.length =
      bytes_in(spec.dtype, scattered ? static_cast<uint64_t>(whole.offset_of(last)) + 1 - first : box.elements());
  if (scattered) piece.strides = whole.strides;
  return piece;
}

}  // namespace

Result<ShareDraft> ShareDraft::create(const Catalog& want, const Outline& outline,
                                      std::span<const std::vector<Box>> boxes) {
  ShareDraft out;
  out.wants_crc32_ = outline.wants_crc32;
  std::vector<const Outline::Payload*> places(want.size());
  std::vector<uint32_t> number(outline.objects.size(), ~0u);
  CatalogBuilder builder;
  for (const auto& payload : outline.payloads) {
    if (payload.tensor >= want.size()) return fail(Code::kInternal, "the outline from rank 0 has another tensor");
    places[payload.tensor] = &payload;
    if (boxes[payload.tensor].empty() || number[payload.object] != ~0u) continue;
    number[payload.object] = static_cast<uint32_t>(out.objects_.size());
    out.objects_.push_back(outline.objects[payload.object]);
    out.numbers_.push_back(payload.object);
    builder.add_object(outline.objects[payload.object]);
  }
  out.segments_.resize(out.objects_.size());
  for (TensorId id = 0; id < want.size(); ++id) {
    auto spec = want.spec(id);
    SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
    if (places[id] == nullptr) continue;
    for (uint32_t i = 0; i < boxes[id].size(); ++i) {
      const Box& box = boxes[id][i];
      if (dtype_row(spec.dtype).block_elems != 1 && box != Box::whole(spec.shape))
        return fail(Code::kUnsupported, "tensors of packed types are written whole, by one rank")
            .at_tensor(std::string(spec.name));
      Piece piece = piece_of_box(spec, box, {Place::kExtent, -1, number[places[id]->object], places[id]->offset, 0});
      piece.encoding = builder.add_encoding({spec.dtype});
      SHARDWRIGHT_TRY(builder.add_piece(piece));
      out.segments_[piece.place.object].push_back({Segment::kPayload, id, i, piece.place.offset, piece.place.length});
    }
  }
  for (auto& segments : out.segments_)
    std::ranges::stable_sort(segments, {}, [](const Segment& segment) { return segment.offset; });
  SHARDWRIGHT_ASSIGN(out.target_, builder.build(/*partial=*/true));
  return out;
}

}  // namespace shardwright
