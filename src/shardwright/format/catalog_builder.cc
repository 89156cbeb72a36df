#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "shardwright/format/catalog_data.h"
#include "shardwright/format/coverage.h"

namespace shardwright {
namespace {

/// Lowest and highest element offset that the strides reach. nullopt on overflow.
std::optional<std::pair<int64_t, int64_t>> reach(const Box& box, std::span<const int64_t> strides) {
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < box.rank(); ++d) {
    int64_t span;
    if (__builtin_mul_overflow(box.extent[d] - 1, strides[d], &span)) return std::nullopt;
    if (__builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high)) return std::nullopt;
  }
  return std::pair{low, high};
}

/// What keeps a piece from being true: it ends behind its object, or its bytes are not those of its box.
Status check_extent(const Piece& piece, const Encoding& encoding, const ObjectInfo* object, bool c_order) {
  const auto& place = piece.place;
  if (object != nullptr && object->size != kUnknown) {
    auto end = checked_add(place.offset, place.length);
    if (!end || *end > object->size)
      return fail(Code::kCorrupt, "piece lies beyond the end of its file")
          .at_path(object->key)
          .with_found(fmt::format("a file of {} bytes", object->size))
          .with_expected(end ? fmt::format("at least {} bytes", *end) : "an offset that fits 64 bits");
  }
  bool raw = encoding.chain.empty();
  uint64_t held = raw ? place.length : encoding.decoded_bytes;
  bool sized = place.site == Place::kExtent || place.site == Place::kLiteral || !raw;
  if (!sized || piece.box.empty() || held == kUnknown) return {};
  std::optional<uint64_t> need;
  if (c_order) {
    need = bytes_of_elements(encoding.stored, piece.box.elements());
  } else if (auto range = reach(piece.box, piece.strides); range && range->first >= 0) {
    need = checked_mul(static_cast<uint64_t>(range->second) + 1, dtype_row(encoding.stored).block_bytes);
    if (dtype_row(encoding.stored).block_elems != 1) need.reset();
  }
  if (need && (c_order && raw ? *need == held : *need <= held)) return {};
  return fail(Code::kCorrupt, "stored length does not fit the piece")
      .with_found(fmt::format("{} bytes", held))
      .with_expected(need ? fmt::format("{} bytes for {}", *need, piece.box.text()) : "strides that stay inside");
}

}  // namespace

CatalogBuilder::CatalogBuilder() : data_(std::make_shared<Catalog::Data>()) {}
CatalogBuilder::~CatalogBuilder() = default;
CatalogBuilder::CatalogBuilder(CatalogBuilder&&) noexcept = default;

void CatalogBuilder::reserve(size_t tensors, size_t name_bytes) {
  data_->rows.reserve(tensors);
  data_->pieces.reserve(tensors);
  data_->shapes.reserve(tensors * 2);
  data_->names.reserve(name_bytes);
}

size_t CatalogBuilder::size() const { return data_->rows.size(); }

ObjectId CatalogBuilder::add_object(ObjectInfo info) {
  data_->objects.push_back(std::move(info));
  return static_cast<ObjectId>(data_->objects.size() - 1);
}

uint32_t CatalogBuilder::add_encoding(const Encoding& encoding) {
  auto& all = data_->encodings;
  // Newest first: neighbours mostly share one. Bounded, so that many distinct chunk sizes stay O(n); a missed match only costs a row.
  size_t looked_at = 0;
  for (size_t i = all.size(); i-- > 0 && looked_at < 64; ++looked_at)
    if (all[i] == encoding) return static_cast<uint32_t>(i);
  all.push_back(encoding);
  return static_cast<uint32_t>(all.size() - 1);
}

Result<TensorId> CatalogBuilder::add_tensor(std::string_view name, DType dtype, std::span<const int64_t> shape) {
  auto elements = element_count(shape);
  auto bytes = elements ? bytes_of_elements(dtype, *elements) : std::nullopt;
  if (!bytes || *bytes > (1ull << 60))
    return fail(Code::kCorrupt,
                "shape " + shape_text(shape) + " of " + std::string(dtype_row(dtype).name) + " has an impossible size")
        .at_tensor(std::string(name));
  if (shape.size() > UINT16_MAX || data_->rows.size() >= kNone - 1)
    return fail(Code::kUnsupported, "too many dimensions or tensors").at_tensor(std::string(name));
  auto& d = *data_;
  auto id = static_cast<TensorId>(d.rows.size());
  d.rows.push_back({d.names.size(), d.shapes.size(), static_cast<uint32_t>(name.size()),
                    static_cast<uint32_t>(d.pieces.size()), 0, id, static_cast<uint16_t>(shape.size()), dtype});
  d.names += name;
  d.shapes.insert(d.shapes.end(), shape.begin(), shape.end());
  return id;
}

Status CatalogBuilder::add_flat(const Place& place, DType stored) {
  auto& d = *data_;
  auto& row = d.rows.back();
  auto elements = element_count(d.shape(static_cast<TensorId>(d.rows.size() - 1)));
  uint64_t expected = bytes_of_elements(stored, *elements).value_or(kUnknown);
  auto name = [&] { return std::string(d.name(static_cast<TensorId>(d.rows.size() - 1))); };
  if (place.length != expected && place.site != Place::kCall && place.site != Place::kMemory)
    return fail(Code::kCorrupt, "stored length does not fit shape and dtype")
        .at_tensor(name())
        .at_offset(place.offset)
        .with_found(std::to_string(place.length) + " bytes")
        .with_expected(fmt::format("{} bytes for {} of {}", expected,
                                   shape_text(d.shape(static_cast<TensorId>(d.rows.size() - 1))),
                                   dtype_row(stored).name));
  if (place.site == Place::kExtent && d.objects[place.object].size != kUnknown) {
    auto end = checked_add(place.offset, place.length);
    if (!end || *end > d.objects[place.object].size)
      return fail(Code::kCorrupt, "tensor lies beyond the end of its file")
          .at_path(d.objects[place.object].key)
          .at_tensor(name())
          .at_offset(place.offset)
          .with_found(fmt::format("a file of {} bytes", d.objects[place.object].size))
          .with_expected(end ? fmt::format("at least {} bytes", *end) : "an offset that fits 64 bits");
  }
  uint32_t encoding = add_encoding({stored});
  d.pieces.push_back({place.offset, place.length, place.object, place.rank, encoding, kNone, kNone, place.site});
  ++row.piece_count;
  return {};
}

Status CatalogBuilder::add_piece(const Piece& piece, bool may_reach_beyond) {
  auto& d = *data_;
  auto id = static_cast<TensorId>(d.rows.size() - 1);
  auto& row = d.rows.back();
  auto shape = d.shape(id);
  auto here = [&](Error error) {
    return std::move(error).at_tensor(std::string(d.name(id))).at_offset(piece.place.offset);
  };
  Box whole = Box::whole(shape);
  bool same_rank = piece.box.rank() == row.rank && piece.box.start.size() == row.rank;
  if (!same_rank || !(may_reach_beyond || whole.contains(piece.box)))
    return here(fail(Code::kCorrupt, "piece " + piece.box.text() + " lies outside shape " + shape_text(shape)));
  const auto& encoding = d.encodings[piece.encoding];
  bool c_order = piece.strides.empty() || piece.strides == c_strides(piece.box.extent);
  if (encoding.chain.empty() && c_order && piece.box == whole && !encoding.big_endian)
    return add_flat(piece.place, encoding.stored);

  const auto& place = piece.place;
  const ObjectInfo* object = place.site == Place::kExtent ? &d.objects[place.object] : nullptr;
  if (auto status = check_extent(piece, encoding, object, c_order); !status.ok())
    return here(std::move(status.error()));
  Catalog::Data::StoredPiece stored{place.offset,   place.length, place.object, place.rank,
                                    piece.encoding, kNone,        kNone,        place.site};
  if (d.numbers.size() > kNone - 4ull * row.rank - 1) return fail(Code::kUnsupported, "too many pieces");
  if (piece.box != whole) {
    stored.box = static_cast<uint32_t>(d.numbers.size());
    d.numbers.insert(d.numbers.end(), piece.box.start.begin(), piece.box.start.end());
    d.numbers.insert(d.numbers.end(), piece.box.extent.begin(), piece.box.extent.end());
  }
  if (!c_order) {
    stored.strides = static_cast<uint32_t>(d.numbers.size());
    d.numbers.insert(d.numbers.end(), piece.strides.begin(), piece.strides.end());
  }
  d.pieces.push_back(stored);
  ++row.piece_count;
  return {};
}

Place CatalogBuilder::add_literal(View bytes) {
  Place place{Place::kLiteral, -1, 0, data_->literals.size(), bytes.size()};
  data_->literals.insert(data_->literals.end(), bytes.begin(), bytes.end());
  return place;
}

void CatalogBuilder::tie(TensorId alias, TensorId kept) {
  data_->rows[alias].same_as = kept;
  data_->rows[alias].piece_count = 0;
  ++data_->ties;
}

void CatalogBuilder::tie_equal_extents() {
  auto& d = *data_;
  std::vector<TensorId> flat;
  for (TensorId id = 0; id < d.rows.size(); ++id) {
    const auto& row = d.rows[id];
    if (row.piece_count != 1 || row.same_as != id) continue;
    const auto& piece = d.pieces[row.first_piece];
    if (piece.site == Place::kExtent && piece.box == kNone && piece.strides == kNone && piece.length > 0)
      flat.push_back(id);
  }
  auto key = [&](TensorId id) {
    const auto& piece = d.pieces[d.rows[id].first_piece];
    return std::tuple(piece.object, piece.offset, piece.length, piece.encoding);
  };
  std::sort(flat.begin(), flat.end(),
            [&](TensorId a, TensorId b) { return std::tuple(key(a), a) < std::tuple(key(b), b); });
  for (size_t i = 1, kept = 0; i < flat.size(); ++i) {
    if (key(flat[i]) != key(flat[kept])) {
      kept = i;
      continue;
    }
    auto same =
        d.rows[flat[i]].dtype == d.rows[flat[kept]].dtype && std::ranges::equal(d.shape(flat[i]), d.shape(flat[kept]));
    if (same) tie(flat[i], flat[kept]);
  }
}

void CatalogBuilder::set_value(std::string key, Value value) { data_->values[std::move(key)] = std::move(value); }

void CatalogBuilder::set_members(std::vector<std::string> members, size_t entry_count) {
  data_->members = std::move(members);
  data_->entry_count = entry_count;
}

void CatalogBuilder::add_side_file(Catalog::SideFile file) { data_->side_files.push_back(std::move(file)); }

Result<Catalog> CatalogBuilder::build(bool partial) {
  auto& d = *data_;
  d.by_name.resize(d.rows.size());
  std::iota(d.by_name.begin(), d.by_name.end(), 0u);
  auto less = [&](TensorId a, TensorId b) { return d.name(a) < d.name(b); };
  if (!std::is_sorted(d.by_name.begin(), d.by_name.end(), less))
    std::stable_sort(d.by_name.begin(), d.by_name.end(), less);
  for (size_t i = 1; i < d.by_name.size(); ++i)
    if (d.name(d.by_name[i]) == d.name(d.by_name[i - 1]))
      return fail(Code::kCorrupt, "two tensors have this name").at_tensor(std::string(d.name(d.by_name[i])));
  for (TensorId id = 0; id < d.rows.size(); ++id) {
    const auto& row = d.rows[id];
    if (row.same_as != id || partial) continue;
    if (row.piece_count == 1 && d.pieces[row.first_piece].box == kNone) continue;
    std::vector<Box> boxes;
    for (uint32_t i = 0; i < row.piece_count; ++i) boxes.push_back(d.box_of(row, d.pieces[row.first_piece + i]));
    auto covered = check_coverage(d.shape(id), std::move(boxes));
    if (!covered.ok()) return std::move(covered.error()).at_tensor(std::string(d.name(id)));
  }
  Catalog catalog;
  catalog.data_ = std::move(data_);
  data_ = std::make_shared<Catalog::Data>();
  return catalog;
}

}  // namespace shardwright
