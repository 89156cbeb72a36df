#include "shardwright/format/catalog.h"

#include <algorithm>

#include "shardwright/base/text.h"
#include "shardwright/format/catalog_data.h"

namespace shardwright {

namespace {

/// A hint is not worth looking at more.
constexpr TensorId kMostNames = 100'000;

}  // namespace

Strided layout_of(const Piece& piece) {
  return {piece.box, piece.strides.empty() ? c_strides(piece.box.extent) : piece.strides};
}

std::vector<std::string> nearest_tensors(const Catalog& catalog, std::string_view wanted, size_t most) {
  std::vector<std::string> names;
  for (TensorId id = 0; id < catalog.size() && id < kMostNames; ++id) names.emplace_back(catalog.spec(id).name);
  return nearest_names(wanted, names, most);
}

std::optional<std::string> find_glob(const Catalog& catalog, std::string_view glob) {
  std::string dotted(glob);
  std::ranges::replace(dotted, '/', '.');
  for (const auto& spelling : {std::string(glob), dotted})
    for (TensorId id = 0; id < catalog.size(); ++id)
      if (glob_match(spelling, catalog.spec(id).name)) return spelling;
  return std::nullopt;
}

uint64_t Catalog::Spec::elements() const { return element_count(shape).value_or(0); }
uint64_t Catalog::Spec::nbytes() const { return bytes_of_elements(dtype, elements()).value_or(0); }

Catalog::Catalog() : data_(std::make_shared<Data>()) {}

size_t Catalog::size() const { return data_->rows.size(); }

Catalog::Spec Catalog::spec(TensorId tensor) const {
  return {data_->name(tensor), data_->rows[tensor].dtype, data_->shape(tensor)};
}

std::optional<TensorId> Catalog::find(std::string_view name) const {
  const auto& ids = data_->by_name;
  auto at = std::lower_bound(ids.begin(), ids.end(), name,
                             [&](TensorId id, std::string_view wanted) { return data_->name(id) < wanted; });
  if (at == ids.end() || data_->name(*at) != name) return std::nullopt;
  return *at;
}

std::vector<Piece> Catalog::pieces(TensorId tensor) const {
  const auto& row = data_->rows[same_as(tensor)];
  std::vector<Piece> out;
  out.reserve(row.piece_count);
  for (uint32_t i = 0; i < row.piece_count; ++i) {
    const auto& stored = data_->pieces[row.first_piece + i];
    Piece piece{data_->box_of(row, stored),
                {stored.site, stored.rank, stored.object, stored.offset, stored.length},
                stored.encoding};
    if (stored.strides != kNone) {
      auto at = data_->numbers.begin() + stored.strides;
      piece.strides.assign(at, at + row.rank);
    }
    out.push_back(std::move(piece));
  }
  return out;
}

size_t Catalog::piece_count(TensorId tensor) const { return data_->rows[same_as(tensor)].piece_count; }

std::optional<Catalog::Flat> Catalog::flat(TensorId tensor) const {
  const auto& row = data_->rows[same_as(tensor)];
  if (row.piece_count != 1) return std::nullopt;
  const auto& piece = data_->pieces[row.first_piece];
  const auto& encoding = data_->encodings[piece.encoding];
  if (piece.box != kNone || piece.strides != kNone || encoding.big_endian || !encoding.chain.empty())
    return std::nullopt;
  return Flat{{piece.site, piece.rank, piece.object, piece.offset, piece.length}, encoding.stored};
}

TensorId Catalog::same_as(TensorId tensor) const { return data_->rows[tensor].same_as; }
size_t Catalog::tie_count() const { return data_->ties; }
const Encoding& Catalog::encoding(uint32_t index) const { return data_->encodings[index]; }

View Catalog::literal(const Place& place) const { return View(data_->literals).subspan(place.offset, place.length); }

std::span<const ObjectInfo> Catalog::objects() const { return data_->objects; }
std::span<const std::string> Catalog::members() const { return data_->members; }
size_t Catalog::entry_count() const { return data_->entry_count; }

const Value* Catalog::value(std::string_view key) const {
  auto at = data_->values.find(key);
  return at == data_->values.end() ? nullptr : &at->second;
}

std::vector<std::string> Catalog::value_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : data_->values) keys.push_back(key);
  return keys;
}

std::span<const Catalog::SideFile> Catalog::side_files() const { return data_->side_files; }

uint64_t Catalog::total_bytes() const {
  uint64_t total = 0;
  for (TensorId id = 0; id < size(); ++id)
    if (same_as(id) == id) total += spec(id).nbytes();
  return total;
}

uint64_t Catalog::memory_bytes() const {
  const auto& d = *data_;
  return d.names.capacity() + d.rows.capacity() * sizeof(Data::Row) + d.shapes.capacity() * sizeof(int64_t) +
         d.pieces.capacity() * sizeof(Data::StoredPiece) + d.numbers.capacity() * sizeof(int64_t) +
         d.by_name.capacity() * sizeof(TensorId) + d.literals.capacity();
}

}  // namespace shardwright
