#include "shardwright/format/hdf5_dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/format/hdf5_types.h"

namespace shardwright {
namespace {

// Keras's own limits for a shape bomb: declares more than this, and this many times what is stored.
constexpr uint64_t kBombBytes = 4 * GiB, kBombFactor = 1000;
constexpr uint64_t kMaxChunks = 4'000'000;

/// One open dataset and what is known of it so far; each step below fills in more.
struct Reader {
  const Hdf5Input& input;
  hid_t dataset;
  Hdf5Tensor& tensor;
  bool opaque_as_bytes;
  Hdf5Properties properties;
  Hdf5Type type;
  Hdf5TypeInfo info;
  std::vector<hsize_t> stored_shape;
  uint64_t declared = 0;  ///< bytes of all elements as stored

  Status check_layout();
  Result<std::optional<Hdf5Skipped>> read_type();
  Result<std::optional<Hdf5Skipped>> read_shape();
  Status name_opaque();
  Status apply_shape_attribute();
  Status read_storage();
  Status read_contiguous();
  Status read_compact();
  Status read_filters();
  Status read_chunks();
  Status read_grid(const std::vector<hsize_t>& chunk, const std::vector<hsize_t>& grid, uint64_t count);
  Status read_fill();
  Status check_bomb(uint64_t stored) const;
  Result<bool> allocated() const;
};

Status Reader::check_layout() {
  auto layout = H5Pget_layout(properties.get());
  if (layout == H5D_VIRTUAL)
    return fail(Code::kUnsupported, "virtual dataset: its values lie in other files")
        .with_hint("copy it into one file first, e.g. `h5repack -l CONTI in.h5 out.h5`");
  int external = H5Pget_external_count(properties.get());
  if (external != 0 && layout == H5D_CONTIGUOUS)
    return fail(Code::kUnsupported, "dataset with external storage: its values lie in other files");
  if (layout != H5D_COMPACT && layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED)
    return input.error("unknown HDF5 storage layout");
  return {};
}

Status Reader::name_opaque() {
  SHARDWRIGHT_ASSIGN(auto text, read_string_attribute(input, dataset, "dtype"));
  if (!text && opaque_as_bytes && info.bytes == 1) return {};
  if (!text)
    return fail(Code::kUnsupported, "opaque dataset without a `dtype` attribute: nothing says what its bytes mean")
        .with_found(info.text)
        .with_hint(info.bytes == 1 ? "Keras writes float8 like that; add the attribute, e.g. dtype = \"float8_e4m3fn\""
                                   : "");
  auto dtype = dtype_from_attribute(*text);
  if (!dtype)
    return fail(Code::kUnsupported, "unknown type in the `dtype` attribute of an opaque dataset")
        .with_found("'" + *text + "'");
  const auto& row = dtype_row(*dtype);
  size_t expected = row.block_elems == 1 ? row.block_bytes : 1;
  if (info.bytes != expected)
    return fail(Code::kCorrupt,
                fmt::format("opaque elements do not have the size of their `dtype` attribute {}", *text))
        .with_found(fmt::format("{} bytes", info.bytes))
        .with_expected(fmt::format("{}", expected));
  tensor.dtype = *dtype;
  return {};
}

Result<std::optional<Hdf5Skipped>> Reader::read_type() {
  type = Hdf5Type(H5Dget_type(dataset));
  if (!type.ok()) return input.error("cannot read the type of a dataset");
  info = classify_hdf5_type(type.get());
  if (info.kind == Hdf5TypeInfo::kNotNumbers) return Hdf5Skipped{info.text};
  if (info.kind == Hdf5TypeInfo::kNoDtype)
    return fail(Code::kUnsupported, "dataset of a type that no dtype here can hold").with_found(info.text);
  tensor.dtype = info.dtype;
  tensor.big_endian = info.big_endian;
  if (info.kind == Hdf5TypeInfo::kOpaque) SHARDWRIGHT_TRY(name_opaque());
  return std::nullopt;
}

Result<std::optional<Hdf5Skipped>> Reader::read_shape() {
  Hdf5Space space(H5Dget_space(dataset));
  if (!space.ok()) return input.error("cannot read the shape of a dataset");
  auto space_class = H5Sget_simple_extent_type(space.get());
  if (space_class == H5S_NULL) return Hdf5Skipped{"empty dataspace"};
  int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || space_class == H5S_NO_CLASS) return input.error("cannot read the shape of a dataset");
  stored_shape.resize(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), stored_shape.data(), nullptr);
  for (hsize_t extent : stored_shape) {
    if (extent > INT64_MAX)
      return fail(Code::kCorrupt, "shape with an impossible extent").with_found(std::to_string(extent));
    tensor.shape.push_back(static_cast<int64_t>(extent));
  }
  auto elements = element_count(tensor.shape);
  auto bytes = elements ? checked_mul(*elements, info.bytes) : std::nullopt;
  if (!bytes) return fail(Code::kCorrupt, "shape has an impossible size").with_found(shape_text(tensor.shape));
  declared = *bytes;
  if (dtype_row(tensor.dtype).block_elems != 1) SHARDWRIGHT_TRY(apply_shape_attribute());
  return std::nullopt;
}

/// Types with several elements in a byte: the dataset is bytes, the attribute says the shape.
Status Reader::apply_shape_attribute() {
  SHARDWRIGHT_ASSIGN(auto shape, read_integers_attribute(dataset, "shape"));
  if (!shape || tensor.shape.size() != 1)
    return fail(Code::kUnsupported, fmt::format("dataset of {} must be one-dimensional bytes with a `shape` attribute",
                                                dtype_row(tensor.dtype).numpy_name))
        .with_found("shape " + shape_text(tensor.shape) + (shape ? "" : ", no attribute"));
  auto elements = element_count(*shape);
  auto bytes = elements ? bytes_of_elements(tensor.dtype, *elements) : std::nullopt;
  if (!bytes || *bytes != declared)
    return fail(Code::kCorrupt, "`shape` attribute does not fit the dataset")
        .with_found(fmt::format("{} of {}", shape_text(*shape), dtype_row(tensor.dtype).numpy_name))
        .with_expected(fmt::format("{} bytes", declared));
  if (H5Pget_layout(properties.get()) == H5D_CHUNKED)
    return fail(Code::kUnsupported, fmt::format("chunked dataset of {}", dtype_row(tensor.dtype).numpy_name));
  tensor.shape = std::move(*shape);
  return {};
}

Status Reader::check_bomb(uint64_t stored) const {
  if (declared <= kBombBytes || declared / kBombFactor <= stored) return {};
  return fail(Code::kCorrupt, "shape bomb: the dataset declares far more than is stored")
      .with_found(fmt::format("{} bytes declared, {} stored", declared, stored))
      .with_expected(fmt::format("at most {} times, or {} bytes", kBombFactor, kBombBytes));
}

Result<bool> Reader::allocated() const {
  H5D_space_status_t status{};
  if (H5Dget_space_status(dataset, &status) < 0) return input.error("cannot read where a dataset is stored");
  return status != H5D_SPACE_STATUS_NOT_ALLOCATED;
}

/// One element as stored where nothing was written.
Status Reader::read_fill() {
  if (dtype_row(tensor.dtype).block_elems != 1)
    return fail(Code::kUnsupported,
                fmt::format("dataset of {} that was never written", dtype_row(tensor.dtype).numpy_name));
  tensor.literal.assign(info.bytes, std::byte{0});
  H5D_fill_value_t defined{};
  if (H5Pfill_value_defined(properties.get(), &defined) < 0)
    return input.error("cannot read the fill value of a dataset");
  // Undefined on purpose (fill "never"): any value is right, zeros are reproducible.
  if (defined == H5D_FILL_VALUE_UNDEFINED) return {};
  if (H5Pget_fill_value(properties.get(), type.get(), tensor.literal.data()) < 0)
    return input.error("cannot read the fill value of a dataset");
  return {};
}

Status Reader::read_compact() {
  tensor.storage = Hdf5Tensor::kLiteral;
  if (H5Dget_storage_size(dataset) != declared || declared > 64 * KiB)
    return fail(Code::kCorrupt, "compact dataset does not have the size of its shape")
        .with_found(fmt::format("{} bytes", H5Dget_storage_size(dataset)))
        .with_expected(fmt::format("{}", declared));
  tensor.literal.resize(declared);
  if (H5Dread(dataset, type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.literal.data()) < 0)
    return input.error("cannot read a compact dataset");
  return {};
}

Status Reader::read_contiguous() {
  SHARDWRIGHT_ASSIGN(bool stored, allocated());
  if (!stored) {
    tensor.storage = Hdf5Tensor::kFill;
    SHARDWRIGHT_TRY(check_bomb(0));
    return read_fill();
  }
  haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) return input.error("cannot read where a dataset is stored");
  tensor.offset = offset;
  tensor.length = H5Dget_storage_size(dataset);
  if (tensor.length != declared)
    return fail(Code::kCorrupt, "dataset is not as long as its shape and type say")
        .at_offset(offset)
        .with_found(fmt::format("{} bytes", tensor.length))
        .with_expected(fmt::format("{}", declared));
  return {};
}

Status Reader::read_filters() {
  int count = H5Pget_nfilters(properties.get());
  if (count < 0) return input.error("cannot read the filters of a dataset");
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    unsigned flags = 0, parameters[16] = {};
    size_t parameter_count = 16;
    char name[64] = {};
    auto id = H5Pget_filter2(properties.get(), i, &flags, &parameter_count, parameters, sizeof name - 1, name, nullptr);
    switch (id) {
      case H5Z_FILTER_DEFLATE: tensor.chain.push_back({"zlib", parameters[0]}); break;
      case H5Z_FILTER_SHUFFLE: tensor.chain.push_back({"shuffle", info.bytes}); break;
      case H5Z_FILTER_FLETCHER32: tensor.chain.push_back({"fletcher32", 0}); break;
      // No codec has such a name: the dataset is listed, and reading its values is refused.
      default: tensor.chain.push_back({fmt::format("HDF5 filter {} {}", static_cast<int>(id), name), 0});
    }
  }
  return {};
}

Status Reader::read_chunks() {
  size_t rank = stored_shape.size();
  std::vector<hsize_t> chunk(rank), grid(rank);
  if (rank == 0 || H5Pget_chunk(properties.get(), static_cast<int>(rank), chunk.data()) != static_cast<int>(rank))
    return input.error("cannot read the chunk shape of a dataset");
  SHARDWRIGHT_TRY(read_filters());
  uint64_t chunk_bytes = info.bytes, count = 1;
  for (size_t d = 0; d < rank; ++d) {
    if (chunk[d] == 0) return fail(Code::kCorrupt, "chunk shape with a zero");
    grid[d] = stored_shape[d] / chunk[d] + (stored_shape[d] % chunk[d] != 0);
    auto more_bytes = checked_mul(chunk_bytes, chunk[d]), more_chunks = checked_mul(count, grid[d]);
    if (!more_bytes || *more_bytes > UINT32_MAX) return fail(Code::kCorrupt, "chunk shape has an impossible size");
    if (!more_chunks || *more_chunks > kMaxChunks)
      return fail(Code::kUnsupported, "dataset is cut into too many chunks")
          .with_found(fmt::format("shape {}", shape_text(tensor.shape)))
          .with_expected(fmt::format("at most {} chunks", kMaxChunks));
    chunk_bytes = *more_bytes;
    count = *more_chunks;
    tensor.chunk_shape.push_back(static_cast<int64_t>(chunk[d]));
  }
  tensor.length = chunk_bytes;
  SHARDWRIGHT_ASSIGN(bool stored, allocated());
  SHARDWRIGHT_TRY(check_bomb(stored ? H5Dget_storage_size(dataset) : 0));
  SHARDWRIGHT_TRY(read_fill());
  tensor.storage = stored ? Hdf5Tensor::kChunks : Hdf5Tensor::kFill;
  if (!stored) return {};
  return read_grid(chunk, grid, count);
}

Status Reader::read_grid(const std::vector<hsize_t>& chunk, const std::vector<hsize_t>& grid, uint64_t count) {
  std::vector<hsize_t> index(grid.size()), first(grid.size());
  for (uint64_t i = 0; i < count; ++i) {
    for (size_t d = 0; d < grid.size(); ++d) first[d] = index[d] * chunk[d];
    SHARDWRIGHT_ASSIGN(auto found, input.chunk(dataset, first.data()));
    tensor.chunks.push_back(found.value_or(Hdf5Input::Chunk{0, 0, 0}));
    for (size_t d = grid.size(); d-- > 0;) {
      if (++index[d] < grid[d]) break;
      index[d] = 0;
    }
  }
  return {};
}

Status Reader::read_storage() {
  if (declared == 0) {
    tensor.storage = Hdf5Tensor::kLiteral;
    return {};
  }
  switch (H5Pget_layout(properties.get())) {
    case H5D_COMPACT: return read_compact();
    case H5D_CHUNKED: return read_chunks();
    default: return read_contiguous();
  }
}

}  // namespace

Result<std::optional<Hdf5Skipped>> read_hdf5_dataset(const Hdf5Input& input, hid_t dataset, Hdf5Tensor& tensor,
                                                     bool opaque_as_bytes) {
  Reader reader{input, dataset, tensor, opaque_as_bytes, Hdf5Properties(H5Dget_create_plist(dataset)), {}, {}, {}, 0};
  if (!reader.properties.ok()) return input.error("cannot read the properties of a dataset");
  SHARDWRIGHT_TRY(reader.check_layout());
  SHARDWRIGHT_ASSIGN(auto skipped, reader.read_type());
  if (skipped) return skipped;
  SHARDWRIGHT_ASSIGN(skipped, reader.read_shape());
  if (skipped) return skipped;
  SHARDWRIGHT_TRY(reader.read_storage());
  return std::nullopt;
}

namespace {

/// The chain without the filters that this chunk left out.
std::vector<CodecSpec> applied(const std::vector<CodecSpec>& chain, uint32_t left_out) {
  std::vector<CodecSpec> out;
  for (size_t i = 0; i < chain.size(); ++i)
    if ((left_out >> i & 1) == 0) out.push_back(chain[i]);
  return out;
}

/// Where the elements of a clipped box lie in its full chunk.
Status add_chunk(CatalogBuilder& builder, const Hdf5Tensor& tensor, const Box& box, const Hdf5Input::Chunk& chunk,
                 ObjectId object, uint64_t base) {
  auto chain = applied(tensor.chain, chunk.filter_mask);
  auto where = checked_add(base, chunk.offset);
  if (!where) return fail(Code::kCorrupt, "chunk with an impossible offset").at_tensor(tensor.name);
  Piece piece{box, {Place::kExtent, -1, object, *where, chunk.length}, 0, c_strides(tensor.chunk_shape)};
  if (chain.empty() && chunk.length != tensor.length)
    return fail(Code::kCorrupt, "raw chunk does not have the size of the chunk shape")
        .at_tensor(tensor.name)
        .at_offset(*where)
        .with_found(fmt::format("{} bytes", chunk.length))
        .with_expected(fmt::format("{}", tensor.length));
  // Clipped in the slowest dimension only: the box is a C-order prefix of the chunk.
  if (chain.empty() && piece.strides == c_strides(box.extent))
    piece.place.length = bytes_of_elements(tensor.dtype, box.elements()).value_or(kUnknown);
  piece.encoding = builder.add_encoding({tensor.dtype, tensor.big_endian, chain, chain.empty() ? 0 : tensor.length});
  return builder.add_piece(piece);
}

Status add_fill(CatalogBuilder& builder, const Hdf5Tensor& tensor, const Box& box, const Place& literal) {
  Piece piece{box, literal, builder.add_encoding({tensor.dtype, tensor.big_endian, {}, 0}),
              std::vector<int64_t>(box.rank(), 0)};
  return builder.add_piece(piece);
}

Status add_chunks(CatalogBuilder& builder, const Hdf5Tensor& tensor, ObjectId object, uint64_t base) {
  size_t rank = tensor.shape.size();
  Box box{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank)};
  std::optional<Place> fill;
  for (const auto& chunk : tensor.chunks) {
    for (size_t d = 0; d < rank; ++d) box.extent[d] = std::min(tensor.chunk_shape[d], tensor.shape[d] - box.start[d]);
    if (chunk.length == 0) {
      if (!fill) fill = builder.add_literal(tensor.literal);
      SHARDWRIGHT_TRY(add_fill(builder, tensor, box, *fill));
    } else {
      SHARDWRIGHT_TRY(add_chunk(builder, tensor, box, chunk, object, base));
    }
    for (size_t d = rank; d-- > 0;) {
      box.start[d] += tensor.chunk_shape[d];
      if (box.start[d] < tensor.shape[d]) break;
      box.start[d] = 0;
    }
  }
  return {};
}

}  // namespace

Status add_hdf5_pieces(CatalogBuilder& builder, const Hdf5Tensor& tensor, ObjectId object, uint64_t base) {
  switch (tensor.storage) {
    case Hdf5Tensor::kChunks: return add_chunks(builder, tensor, object, base);
    case Hdf5Tensor::kFill:
      return add_fill(builder, tensor, Box::whole(tensor.shape), builder.add_literal(tensor.literal));
    default: break;
  }
  Place place{Place::kLiteral, -1, 0, 0, 0};
  if (tensor.storage == Hdf5Tensor::kLiteral) {
    place = builder.add_literal(tensor.literal);
  } else {
    auto where = checked_add(base, tensor.offset);
    if (!where) return fail(Code::kCorrupt, "dataset with an impossible offset").at_tensor(tensor.name);
    place = {Place::kExtent, -1, object, *where, tensor.length};
  }
  if (!tensor.big_endian) return builder.add_flat(place, tensor.dtype);
  return builder.add_piece({Box::whole(tensor.shape), place, builder.add_encoding({tensor.dtype, true, {}, 0}), {}});
}

}  // namespace shardwright
