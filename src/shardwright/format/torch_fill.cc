#include "shardwright/format/torch_fill.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

/// Strides are those of C order, but for dimensions in which there is nothing to step over.
bool is_c_order(const TorchTensor& tensor) {
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return true;
  auto wanted = c_strides(tensor.shape);
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    if (tensor.shape[d] != 1 && tensor.strides[d] != wanted[d]) return false;
  return true;
}

/// Elements from the first to the last that strides reach.
uint64_t reach(const TorchTensor& tensor) {
  uint64_t last = 0;
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    last += static_cast<uint64_t>((tensor.shape[d] - 1) * tensor.strides[d]);
  return last + 1;
}

}  // namespace

Status TorchFill::add_tensor(const TorchFile& file, ObjectId object, const TorchTensor& tensor) {
  auto shape = tensor.shape;
  const auto& row = dtype_row(tensor.dtype);
  if (row.block_elems > 1) {  // torch counts whole bytes
    if (shape.empty() || shape.back() > INT64_MAX / row.block_elems)
      return fail(Code::kCorrupt, "a tensor of packed elements without a dimension to count them")
          .at_tensor(std::string(tensor.name));
    shape.back() *= row.block_elems;
  }
  SHARDWRIGHT_TRY(builder.add_tensor(tensor.name, tensor.dtype, shape));
  if (!tensor.literal.empty()) return builder.add_flat(builder.add_literal(tensor.literal), tensor.dtype);
  auto refuse = [&](std::string message) {
    return fail(Code::kUnsupported, std::move(message))
        .at_tensor(std::string(tensor.name))
        .with_hint("in torch: make it contiguous() and save it again");
  };
  const auto& stored = file.places[tensor.storage];
  bool c_order = is_c_order(tensor);
  uint64_t width = row.block_bytes, bytes = *element_count(tensor.shape) * width;
  Piece piece;
  piece.box = Box::whole(shape);
  Encoding encoding{tensor.dtype, file.big_endian && width > 1};
  piece.place = {Place::kExtent, -1, object, stored.offset + tensor.offset * width, bytes};
  if (stored.deflated && bytes > 0) {
    if (!c_order || tensor.offset != 0 || bytes != stored.bytes)
      return refuse("tensor is only a part of a compressed storage");
    piece.place.length = stored.stored_bytes;
    encoding.chain = {{"deflate", 0}};
    encoding.decoded_bytes = bytes;
  } else if (!c_order) {
    if (row.block_elems > 1) return refuse("a tensor of packed elements that is not in C order");
    piece.place.length = reach(tensor) * width;
    piece.strides = tensor.strides;
  }
  if (bytes == 0) piece.place.offset = stored.offset;
  piece.encoding = builder.add_encoding(encoding);
  return builder.add_piece(piece);
}

Status TorchFill::add(const std::string& key, const std::function<void(std::string_view, TensorId)>& seen) {
  auto located = [&](Error error) {
    if (error.path.empty()) error.path = store_.describe(key);
    return error;
  };
  auto file = read_torch_file(store_, key, options_);
  if (!file.ok()) return located(std::move(file.error()));
  ObjectId object = builder.add_object({key, file->size});
  auto other = walk_torch_objects(file->pickle, file->storages, [&](const TorchTensor& tensor) -> Status {
    SHARDWRIGHT_TRY(add_tensor(*file, object, tensor));
    if (seen) seen(tensor.name, static_cast<TensorId>(builder.size() - 1));
    return {};
  });
  if (!other.ok()) return located(std::move(other.error()));
  if (auto root = other->opaque.find("(root)"); root != other->opaque.end())
    return fail(Code::kUnsupported, "the file is one object that only its own code can make, and no tensors")
        .at_path(store_.describe(key))
        .with_found(root->second)
        .with_hint("in torch: torch.save(model.state_dict(), path)");
  other_.opaque.merge(other->opaque);
  other_.values.merge(other->values);
  return {};
}

Status TorchFill::add_files(std::span<const std::string> keys, const Seen& seen, const Done& done) {
  for (size_t i = 0; i < keys.size(); ++i) {
    auto status = add(keys[i], [&](std::string_view name, TensorId id) { seen(i, name, id); });
    SHARDWRIGHT_TRY(done(i, std::move(status)));
  }
  return {};
}

Status TorchFill::finish() {
  builder.tie_equal_extents();
  if (!metadata_.empty()) builder.set_value("metadata", {Value::kJson, json_text(metadata_)});
  if (!other_.values.empty()) builder.set_value(std::string(kTorchValues), {Value::kJson, json_text(other_.values)});
  if (other_.opaque.empty()) return {};
  builder.set_value(std::string(kOpaqueValue), {Value::kJson, json_text(other_.opaque)});
  if (options_.remarks == nullptr || options_.findings != nullptr) return {};  // not wrong: only not ours
  const auto& [name, what] = *other_.opaque.begin();
  options_.remarks->push_back(
      fail(Code::kUnsupported,
           fmt::format("{} in the pickle {} no tensor, and {} left out: '{}' ({}){}",
                       other_.opaque.size() == 1 ? "an object" : fmt::format("{} objects", other_.opaque.size()),
                       other_.opaque.size() == 1 ? "is" : "are", other_.opaque.size() == 1 ? "is" : "are", name, what,
                       other_.opaque.size() == 1 ? "" : ", ...")));
  return {};
}

}  // namespace shardwright
