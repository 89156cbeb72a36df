#include "shardwright/engine/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/engine/saved_layout.h"

namespace shardwright {
namespace {

/// What safetensors headers and indexes are read with, less what is noted for ties.
constexpr uint64_t kMaxMetadataBytes = 24 << 20;

/// True when the box's elements follow each other in the tensor: one index before the dimension that is cut, all behind it.
bool is_run(std::span<const int64_t> shape, const Box& box) {
  size_t d = 0;
  while (d < shape.size() && box.extent[d] == 1) ++d;
  for (++d; d < shape.size(); ++d)
    if (box.extent[d] != shape[d]) return false;
  return true;
}

class Cutter {
 public:
  Cutter(const Catalog& from, std::span<const Box> boxes) : from_(from), boxes_(boxes) {}

  Result<Catalog> cut() {
    for (const auto& object : from_.objects()) builder_.add_object(object);
    for (TensorId id = 0; id < from_.size(); ++id) {
      auto status = add(id);
      if (!status.ok()) return std::move(status.error()).at_tensor(std::string(from_.spec(id).name));
    }
    for (const auto& key : from_.value_keys()) builder_.set_value(key, *from_.value(key));
    for (const auto& file : from_.side_files()) builder_.add_side_file(file);
    builder_.set_members({from_.members().begin(), from_.members().end()}, from_.entry_count());
    return builder_.build(/*partial=*/true);  // what reaches beyond is no tiling
  }

 private:
  Status add(TensorId id) {
    auto spec = from_.spec(id);
    const Box& box = boxes_[id];
    SHARDWRIGHT_ASSIGN(auto added, builder_.add_tensor(spec.name, spec.dtype, box.extent));
    TensorId kept = from_.same_as(id);
    if (kept != id && boxes_[kept] == box) {
      builder_.tie(added, kept);
      return {};
    }
    if (box.empty()) return builder_.add_flat(builder_.add_literal({}), spec.dtype);
    if (auto flat = from_.flat(id); flat && is_run(spec.shape, box)) return add_run(*flat, spec.shape, box);
    for (Piece& piece : from_.pieces(id)) {
      auto overlap = intersect(piece.box, box);
      if (overlap || box.rank() == 0) SHARDWRIGHT_TRY(add_cut(std::move(piece), *overlap, box));
    }
    return {};
  }

  Status add_run(Catalog::Flat flat, std::span<const int64_t> shape, const Box& box) {
    if (flat.place.site == Place::kCall) return fail(Code::kUnsupported, "what calls make cannot be cut");
    auto before = static_cast<uint64_t>(Strided{Box::whole(shape), c_strides(shape)}.offset_of(box.start));
    auto skip = bytes_of_elements(flat.stored, before), length = bytes_of_elements(flat.stored, box.elements());
    if (!skip || !length) return fail(Code::kUnsupported, "a shard would begin or end within a block of its type");
    View literal = flat.place.site == Place::kLiteral ? from_.literal(flat.place) : View{};
    flat.place.offset += *skip;
    flat.place.length = *length;
    if (flat.place.site == Place::kLiteral) flat.place = builder_.add_literal(literal.subspan(*skip, *length));
    return builder_.add_flat(flat.place, flat.stored);
  }

  /// overlap: of the piece with the box, in elements of the whole tensor.
  Status add_cut(Piece piece, const Box& overlap, const Box& box) {
    if (piece.place.site == Place::kCall) return fail(Code::kUnsupported, "what calls make cannot be cut");
    const Encoding& encoding = from_.encoding(piece.encoding);
    if (dtype_row(encoding.stored).block_elems != 1)
      return fail(Code::kUnsupported, "tensors of packed types are cut along their first dimensions only");
    View literal = piece.place.site == Place::kLiteral ? from_.literal(piece.place) : View{};
    bool raw = encoding.chain.empty();
    piece.encoding = builder_.add_encoding(encoding);
    if (raw && overlap != piece.box) {
      Strided held = layout_of(piece);
      auto last = overlap.start;
      for (size_t d = 0; d < last.size(); ++d) last[d] += overlap.extent[d] - 1;
      int64_t size = dtype_row(encoding.stored).block_bytes, first = held.offset_of(overlap.start);
      piece.place.offset += static_cast<uint64_t>(first * size);
      piece.place.length = static_cast<uint64_t>((held.offset_of(last) - first + 1) * size);
      if (!literal.empty()) literal = literal.subspan(static_cast<size_t>(first * size), piece.place.length);
      piece.box = overlap;
      piece.strides = std::move(held.strides);
    }
    if (piece.place.site == Place::kLiteral) piece.place = builder_.add_literal(literal);
    for (size_t d = 0; d < box.rank(); ++d) piece.box.start[d] -= box.start[d];
    return builder_.add_piece(piece, /*may_reach_beyond=*/!raw);
  }

  const Catalog& from_;
  std::span<const Box> boxes_;
  CatalogBuilder builder_;
};

/// Specs of the wanted checkpoint in local shapes.
Result<Catalog> cut_specs(const Catalog& want, std::span<const Box> boxes, const std::string& metadata) {
  CatalogBuilder builder;
  for (TensorId id = 0; id < want.size(); ++id) {
    auto spec = want.spec(id);
    SHARDWRIGHT_ASSIGN(auto added, builder.add_tensor(spec.name, spec.dtype, boxes[id].extent));
    TensorId kept = want.same_as(id);
    if (kept != id && boxes[kept] == boxes[id]) builder.tie(added, kept);
  }
  for (const auto& key : want.value_keys()) builder.set_value(key, *want.value(key));
  builder.set_value("metadata", {Value::kJson, metadata});
  for (const auto& file : want.side_files()) builder.add_side_file(file);
  return builder.build(/*partial=*/true);
}

/// The checkpoint's own metadata.
Result<Json> metadata_of(const Catalog& want) {
  Json metadata = Json::object();
  if (const Value* value = want.value("metadata")) {
    SHARDWRIGHT_ASSIGN(metadata, parse_json(value->data));
    if (!metadata.is_object()) return fail(Code::kInvalidArgument, "metadata is not a JSON object");
  }
  if (metadata.contains(kPartKey))
    return fail(Code::kInvalidArgument, "the source is one device's part itself")
        .with_hint("take parts of the whole checkpoint");
  return metadata;
}

/// The metadata with the part's description.
Result<std::string> describe_part(Json metadata, const Catalog& want, const DevicePart& part,
                                  std::span<const Box> boxes) {
  const DeviceMesh& mesh = part.layout.mesh();
  std::string axes, tensors;
  for (const auto& name : mesh.axis_names()) axes += (axes.empty() ? "" : ", ") + json_quote(name);
  for (TensorId id = 0; id < want.size(); ++id)
    tensors +=
        fmt::format(R"({}{}: {{"shape": [{}], "start": [{}]}})", id == 0 ? "" : ", ", json_quote(want.spec(id).name),
                    fmt::join(want.spec(id).shape, ", "), fmt::join(boxes[id].start, ", "));
  metadata[std::string(kPartKey)] =
      fmt::format(R"({{"axis_names": [{}], "shape": [{}], "rank": {}, "tensors": {{{}}}}})", axes,
                  fmt::join(mesh.shape(), ", "), part.position, tensors);
  std::string text = json_text(metadata);
  if (text.size() <= kMaxMetadataBytes) return text;
  return fail(Code::kUnsupported, "the description of the part is larger than readers take as metadata")
      .with_found(fmt::format("{} for {} tensors", format_bytes(text.size()), want.size()))
      .with_expected("at most " + format_bytes(kMaxMetadataBytes));
}

Result<std::vector<Box>> lay_out(const DevicePart& part, const Catalog& want, std::vector<std::string>& warnings) {
  std::vector<TensorToLay> tensors;
  for (TensorId id = 0; id < want.size(); ++id) tensors.push_back(tensor_to_lay(want, id));
  LayoutReport report = report_layout(part.layout, tensors);
  SHARDWRIGHT_TRY(problem_of(report));
  for (uint32_t rule : report.unused_rules)
    warnings.push_back("the rule '" + part.layout.rules()[rule].pattern + "' names no tensor");
  for (uint32_t id : report.large)
    warnings.push_back(fmt::format("'{}' ({}) has no rule: it is whole on every device", tensors[id].name,
                                   format_bytes(report.rows[id].shard_bytes)));
  std::vector<Box> boxes;
  for (const auto& row : report.rows) boxes.push_back(row.grid->box_of(part.position));
  return boxes;
}

}  // namespace

Result<Catalog> cut_catalog(const Catalog& from, std::span<const Box> boxes) { return Cutter(from, boxes).cut(); }

Result<std::vector<std::string>> take_part(const DevicePart& part, Catalog& from, Selected& selected) {
  int64_t devices = part.layout.mesh().size();
  if (part.position < 0 || part.position >= devices)
    return fail(Code::kInvalidArgument, "the mesh has no such rank")
        .with_found(std::to_string(part.position))
        .with_expected(fmt::format("0 to {}", devices - 1));
  std::vector<std::string> warnings;
  SHARDWRIGHT_ASSIGN(Json own, metadata_of(selected.want));
  SHARDWRIGHT_ASSIGN(auto boxes, lay_out(part, selected.want, warnings));
  SHARDWRIGHT_ASSIGN(auto metadata, describe_part(std::move(own), selected.want, part, boxes));
  std::vector<Box> source_boxes;
  for (TensorId id = 0; id < from.size(); ++id) source_boxes.push_back(Box::whole(from.spec(id).shape));
  for (TensorId id = 0; id < selected.want.size(); ++id)
    source_boxes[selected.origin.empty() ? id : selected.origin[id]] = boxes[id];
  SHARDWRIGHT_ASSIGN(from, cut_catalog(from, source_boxes));
  SHARDWRIGHT_ASSIGN(selected.want, cut_specs(selected.want, boxes, metadata));
  return warnings;
}

}  // namespace shardwright
