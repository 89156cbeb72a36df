#include <algorithm>

#include "shardwright/base/byte_reader.h"
#include "shardwright/format/catalog_data.h"

namespace shardwright {
namespace {

constexpr std::string_view kMagic = "SWCAT002";

class Out {
 public:
  template <class T>
  void number(T value) {
    append_le(bytes, value);
  }
  void text(std::string_view value) { append_sized(bytes, value); }
  void numbers(std::span<const int64_t> values) {
    for (int64_t value : values) number(value);
  }
  Bytes bytes;
};

/// Reads what Out wrote.
class In : public ByteReader {
 public:
  using ByteReader::ByteReader;
  std::vector<int64_t> numbers(size_t count) {
    std::vector<int64_t> values;
    for (size_t i = 0; i < count && !bad; ++i) values.push_back(number<int64_t>());
    return values;
  }
};

void put_piece(Out& out, const Piece& piece) {
  out.numbers(piece.box.start);
  out.numbers(piece.box.extent);
  out.number<uint8_t>(piece.place.site);
  out.number(piece.place.rank);
  out.number(piece.place.object);
  out.number(piece.place.offset);
  out.number(piece.place.length);
  out.number(piece.encoding);
  out.number<uint8_t>(!piece.strides.empty());
  out.numbers(piece.strides);
}

Piece get_piece(In& in, size_t rank) {
  Piece piece;
  piece.box.start = in.numbers(rank);
  piece.box.extent = in.numbers(rank);
  auto site = in.number<uint8_t>();
  if (site > Place::kCall) in.bad = true;
  piece.place.site = static_cast<Place::Site>(site);
  piece.place.rank = in.number<int32_t>();
  piece.place.object = in.number<uint32_t>();
  piece.place.offset = in.number<uint64_t>();
  piece.place.length = in.number<uint64_t>();
  piece.encoding = in.number<uint32_t>();
  if (in.number<uint8_t>() != 0) piece.strides = in.numbers(rank);
  return piece;
}

Status refuse() { return fail(Code::kCorrupt, "serialized catalogue is damaged"); }

/// What a piece may point to.
struct Bounds {
  size_t objects, encodings;
  uint64_t literal_bytes;
};

bool is_sound(const Piece& piece, std::span<const int64_t> shape, const Bounds& bounds) {
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t start = piece.box.start[d], extent = piece.box.extent[d];
    if (start < 0 || extent < 0 || start > shape[d] || extent > shape[d] - start) return false;
  }
  const auto& place = piece.place;
  if (piece.encoding >= bounds.encodings) return false;
  if (place.site == Place::kExtent) return place.object < bounds.objects;
  return place.site != Place::kLiteral ||
         (place.offset <= bounds.literal_bytes && place.length <= bounds.literal_bytes - place.offset);
}

Status get_tensors(In& in, CatalogBuilder& builder, const Bounds& bounds) {
  struct Seen {
    uint8_t dtype;
    std::vector<int64_t> shape;
    bool alias;
  };
  std::vector<Seen> seen;
  size_t tensors = in.count(19);
  for (size_t i = 0; i < tensors && !in.bad; ++i) {
    auto name = in.text();
    auto dtype = in.number<uint8_t>();
    auto shape = in.numbers(in.number<uint16_t>());
    auto kept = in.number<uint32_t>();
    if (in.bad || dtype >= dtype_table().size() || kept > i) return refuse();
    auto id = builder.add_tensor(name, static_cast<DType>(dtype), shape);
    if (!id.ok()) return std::move(id.error());
    size_t pieces = in.count(30);
    if (kept != i) {
      if (pieces != 0 || seen[kept].alias || seen[kept].dtype != dtype || seen[kept].shape != shape) return refuse();
      builder.tie(*id, kept);
    }
    seen.push_back({dtype, shape, kept != i});
    for (size_t p = 0; p < pieces && !in.bad; ++p) {
      Piece piece = get_piece(in, shape.size());
      if (in.bad || !is_sound(piece, shape, bounds)) return refuse();
      SHARDWRIGHT_TRY(builder.add_piece(piece));
    }
  }
  return in.bad ? refuse() : Status{};
}

Status get_encodings(In& in, CatalogBuilder& builder, size_t& encodings) {
  encodings = in.count(14);
  for (size_t i = 0; i < encodings && !in.bad; ++i) {
    auto dtype = in.number<uint8_t>();
    if (dtype >= dtype_table().size()) return refuse();
    Encoding encoding{static_cast<DType>(dtype), in.number<uint8_t>() != 0};
    encoding.decoded_bytes = in.number<uint64_t>();
    size_t steps = in.number<uint32_t>();
    for (size_t s = 0; s < steps && !in.bad; ++s) {
      std::string codec(in.text());
      encoding.chain.push_back({std::move(codec), in.number<uint64_t>()});
      for (size_t v = in.count(8); v-- > 0 && !in.bad;) encoding.chain.back().values.push_back(in.number<uint64_t>());
    }
    if (!in.bad && builder.add_encoding(encoding) != i) return refuse();
  }
  return in.bad ? refuse() : Status{};
}

void get_values(In& in, CatalogBuilder& builder) {
  for (size_t i = in.count(17); i-- > 0 && !in.bad;) {
    std::string key(in.text());
    auto type = in.number<uint8_t>();
    builder.set_value(std::move(key), {type == Value::kBytes ? Value::kBytes : Value::kJson, std::string(in.text())});
  }
  size_t entries = in.number<uint64_t>();
  std::vector<std::string> members;
  for (size_t i = in.count(8); i-- > 0 && !in.bad;) members.emplace_back(in.text());
  if (entries > members.size()) in.bad = true;
  builder.set_members(std::move(members), entries);
  for (size_t i = in.count(48); i-- > 0 && !in.bad;) {
    std::string name(in.text()), key(in.text());
    auto offset = in.number<uint64_t>(), length = in.number<uint64_t>();
    std::string codec(in.text());
    builder.add_side_file({std::move(name), std::move(key), offset, length, std::move(codec), in.number<uint64_t>()});
  }
}

}  // namespace

Bytes Catalog::serialize() const {
  Out out;
  out.text(kMagic);
  out.number<uint64_t>(data_->literals.size());
  out.bytes.insert(out.bytes.end(), data_->literals.begin(), data_->literals.end());
  out.number<uint64_t>(objects().size());
  for (const auto& object : objects()) {
    out.text(object.key);
    out.number(object.size);
  }
  out.number<uint64_t>(data_->encodings.size());
  for (const auto& encoding : data_->encodings) {
    out.number<uint8_t>(static_cast<uint8_t>(encoding.stored));
    out.number<uint8_t>(encoding.big_endian);
    out.number(encoding.decoded_bytes);
    out.number(static_cast<uint32_t>(encoding.chain.size()));
    for (const auto& step : encoding.chain) {
      out.text(step.name);
      out.number(step.parameter);
      out.number<uint64_t>(step.values.size());
      for (uint64_t value : step.values) out.number(value);
    }
  }
  out.number<uint64_t>(size());
  for (TensorId id = 0; id < size(); ++id) {
    auto tensor = spec(id);
    out.text(tensor.name);
    out.number<uint8_t>(static_cast<uint8_t>(tensor.dtype));
    out.number(static_cast<uint16_t>(tensor.shape.size()));
    out.numbers(tensor.shape);
    out.number(same_as(id));
    bool alias = same_as(id) != id;
    out.number<uint64_t>(alias ? 0 : piece_count(id));
    if (!alias)
      for (const auto& piece : pieces(id)) put_piece(out, piece);
  }
  out.number<uint64_t>(data_->values.size());
  for (const auto& [key, value] : data_->values) {
    out.text(key);
    out.number<uint8_t>(value.type);
    out.text(value.data);
  }
  out.number<uint64_t>(entry_count());
  out.number<uint64_t>(members().size());
  for (const auto& member : members()) out.text(member);
  out.number<uint64_t>(side_files().size());
  for (const auto& file : side_files()) {
    out.text(file.name);
    out.text(file.key);
    out.number(file.offset);
    out.number(file.length);
    out.text(file.codec);
    out.number(file.decoded_bytes);
  }
  return std::move(out.bytes);
}

Result<Catalog> Catalog::deserialize(View bytes) {
  In in(bytes);
  if (in.text() != kMagic) return std::move(refuse().error());
  CatalogBuilder builder;
  auto literals = in.text();
  builder.add_literal(view_of(literals));
  size_t objects = in.count(16);
  for (size_t i = 0; i < objects && !in.bad; ++i) {
    std::string key(in.text());
    builder.add_object({std::move(key), in.number<uint64_t>()});
  }
  size_t encodings = 0;
  SHARDWRIGHT_TRY(get_encodings(in, builder, encodings));
  SHARDWRIGHT_TRY(get_tensors(in, builder, {objects, encodings, literals.size()}));
  get_values(in, builder);
  if (in.bad) return std::move(refuse().error());
  return builder.build(/*partial=*/true);
}

}  // namespace shardwright
