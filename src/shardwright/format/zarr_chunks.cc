#include "shardwright/format/zarr_chunks.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/checksum.h"
#include "shardwright/base/text.h"

namespace shardwright {
namespace {

constexpr uint64_t kEntryBytes = 16, kSumBytes = 4, kMissing = ~uint64_t{0},
                   kFewPlaces = 256;  // fewer are looked into one by one, without a listing

/// Indices of a grid in C order. Starts at the first; false when there is none left.
bool next_index(std::vector<int64_t>& index, std::span<const int64_t> counts) {
  for (size_t d = index.size(); d-- > 0;) {
    if (++index[d] < counts[d]) return true;
    index[d] = 0;
  }
  return false;
}

std::vector<int64_t> grid_of(std::span<const int64_t> shape, std::span<const int64_t> chunk) {
  std::vector<int64_t> counts;
  for (size_t d = 0; d < shape.size(); ++d) counts.push_back(shape[d] / chunk[d] + (shape[d] % chunk[d] != 0));
  return counts;
}

/// Of a box of chunks, what lies within the array.
Box clipped_box(const ZarrArray& array, std::span<const int64_t> start, std::span<const int64_t> extent) {
  Box box{{start.begin(), start.end()}, {extent.begin(), extent.end()}};
  for (size_t d = 0; d < start.size(); ++d) box.extent[d] = std::min(extent[d], array.shape[d] - start[d]);
  return box;
}

/// Strides of a whole chunk whose dimensions lie in `order`; C order when that is empty.
std::vector<int64_t> chunk_strides(std::span<const int64_t> extent, std::span<const uint64_t> order) {
  if (order.empty()) return c_strides(extent);
  std::vector<int64_t> strides(extent.size());
  int64_t step = 1;
  for (size_t d = order.size(); d-- > 0;) {
    strides[order[d]] = step;
    step *= extent[order[d]];
  }
  return strides;
}

}  // namespace

Result<std::optional<ZarrArray>> ZarrCatalog::read_array(ZarrValues& values, std::string_view path, bool zarr3_first) {
  for (bool zarr3 : {zarr3_first, !zarr3_first}) {
    std::string key = zarr_key(path, zarr3 ? kZarr3Node : kZarr2Array);
    SHARDWRIGHT_ASSIGN(auto found, values.find(key));
    if (!found) continue;
    SHARDWRIGHT_ASSIGN(Bytes text,
                       read_zarr_value(store_, *found, std::min<uint64_t>(limits_.max_metadata_bytes, 16 * MiB)));
    auto array = (zarr3 ? parse_zarr3_array : parse_zarr2_array)(text_of(text));
    if (!array.ok()) return std::move(array.error()).at_path(values.describe(key));
    return std::optional(std::move(*array));
  }
  return std::optional<ZarrArray>();
}

Status ZarrCatalog::charge(uint64_t pieces) {
  pieces_ += pieces;
  if (pieces_ <= limits_.max_pieces) return {};
  return fail(Code::kUnsupported, "zarr arrays of more chunks than can be listed")
      .with_expected(fmt::format("at most {}", format_count(limits_.max_pieces)));
}

Result<ObjectId> ZarrCatalog::object_of(const std::string& key) {
  if (key == last_key_ && !objects_.empty()) return last_object_;
  auto known = objects_.find(key);
  if (known == objects_.end()) {
    SHARDWRIGHT_ASSIGN(auto size, store_.size(key));
    if (!size)
      return fail(Code::kNotFound, "a data file is missing")
          .at_path(store_.describe(key))
          .with_hint("copy it beside the others, or take the checkpoint from where it is whole");
    known = objects_.emplace(key, builder_.add_object({key, *size})).first;
  }
  last_key_ = key;
  return last_object_ = known->second;
}

Status ZarrCatalog::add(ZarrValues& values, std::string_view path, std::string_view name, const ZarrArray& given,
                        bool fill_missing) {
  // Only the index tells of a chunk that is not there.
  ZarrArray array = given;
  if (fill_missing) array.look_into_shards();
  SHARDWRIGHT_ASSIGN(auto id, builder_.add_tensor(name, array.dtype, array.shape));
  (void)id;
  if (element_count(array.shape) == 0) return builder_.add_flat(builder_.add_literal({}), array.dtype);
  auto counts = grid_of(array.shape, array.chunk);
  Adding adding{values, path, name, array, fill_missing, std::move(counts)};
  uint64_t cells = element_count(adding.counts).value_or(kUnknown);
  auto status = [&]() -> Status {
    if (!fill_missing || cells <= kFewPlaces) return add_all(adding);
    SHARDWRIGHT_ASSIGN(auto keys, values.keys_below(path));
    std::vector<uint64_t> stored;
    for (const auto& key : keys)
      if (auto index = array.index_of(key, adding.counts)) stored.push_back(*index);
    if (stored.size() >= cells / 4) return add_all(adding);
    if (array.separator != '/' || values.lists_directories()) return add_sparse(adding, std::move(stored));
    if (cells <= limits_.max_looked_for) return add_all(adding);
    return fail(Code::kUnsupported, "zarr array of few chunks, in directories, and more places than are looked into")
        .at_path(values.describe(path))
        .with_found(fmt::format("{} places", format_count(cells)))
        .with_expected(fmt::format("at most {}", format_count(limits_.max_looked_for)));
  }();
  if (status.ok()) status = add_shards(values, path, array, adding.shards, fill_missing);
  if (!status.ok() && status.error().tensor.empty()) return std::move(status.error()).at_tensor(std::string(name));
  return status;
}

/// Looks into every place of the grid.
Status ZarrCatalog::add_all(Adding& adding) {
  const auto& array = adding.array;
  SHARDWRIGHT_TRY(charge(element_count(adding.counts).value_or(kUnknown / 2)));
  std::vector<Box> missing;
  uint64_t there = 0;
  std::vector<int64_t> index(adding.counts.size()), start(adding.counts.size());
  do {
    for (size_t d = 0; d < index.size(); ++d) start[d] = index[d] * array.chunk[d];
    std::string key = zarr_key(adding.path, array.key_of(index));
    SHARDWRIGHT_ASSIGN(auto value, adding.values.find(key));
    if (!value && !adding.fill_missing)
      return fail(Code::kNotFound, "a chunk of the array is missing")
          .at_path(adding.values.describe(key))
          .with_hint("it was never written, or is gone; nothing says that it is zeros");
    if (value) {
      ++there;
      SHARDWRIGHT_TRY(add_stored(adding, start, std::move(*value)));
      continue;
    }
    missing.push_back(clipped_box(array, start, array.chunk));
  } while (next_index(index, adding.counts));
  if (there == 0) return add_fill(array, Box::whole(array.shape));
  for (const auto& box : missing) SHARDWRIGHT_TRY(add_fill(array, box));
  return {};
}

/// What is stored, and between two of them the few boxes that are not. stored: places in C order of the grid.
Status ZarrCatalog::add_sparse(Adding& adding, std::vector<uint64_t> stored) {
  const auto& array = adding.array;
  if (stored.empty()) return add_fill(array, Box::whole(array.shape));
  std::sort(stored.begin(), stored.end());
  Box grid = Box::whole(adding.counts);
  stored.push_back(grid.elements());
  uint64_t next = 0;
  for (uint64_t place : stored) {
    for (const auto& gap : boxes_of_range(grid, next, place - next)) {
      SHARDWRIGHT_TRY(charge(1));
      std::vector<int64_t> start = gap.start, extent = gap.extent;
      for (size_t d = 0; d < start.size(); ++d) {
        start[d] *= array.chunk[d];
        extent[d] *= array.chunk[d];  // at most the shape and one chunk: within 2^57
      }
      SHARDWRIGHT_TRY(add_fill(array, clipped_box(array, start, extent)));
    }
    next = place + 1;
    if (place == stored.back()) break;
    SHARDWRIGHT_TRY(charge(1));
    std::vector<int64_t> index = boxes_of_range(grid, place, 1).front().start, start = index;
    for (size_t d = 0; d < start.size(); ++d) start[d] *= array.chunk[d];
    std::string key = zarr_key(adding.path, array.key_of(index));
    SHARDWRIGHT_ASSIGN(auto value, adding.values.find(key));
    if (!value)
      return fail(Code::kNotFound, "a chunk went away while its array was opened").at_path(adding.values.describe(key));
    SHARDWRIGHT_TRY(add_stored(adding, start, std::move(*value)));
  }
  return {};
}

Status ZarrCatalog::add_stored(Adding& adding, std::span<const int64_t> start, ZarrValue value) {
  if (adding.array.inner.empty()) return add_chunk(adding.array, start, adding.array.chunk, value);
  adding.shards.push_back({{start.begin(), start.end()}, std::move(value)});
  return {};
}

/// One element for all of them. In the byte order of the chunks, for all pieces of a tensor share one.
Status ZarrCatalog::add_fill(const ZarrArray& array, const Box& box) {
  Piece piece{box, builder_.add_literal(array.fill), builder_.add_encoding({array.dtype, array.big_endian}), {}};
  piece.strides.assign(box.rank(), 0);
  return builder_.add_piece(piece);
}

Status ZarrCatalog::add_chunk(const ZarrArray& array, std::span<const int64_t> start, std::span<const int64_t> extent,
                              const ZarrValue& value) {
  uint64_t element = dtype_row(array.dtype).block_bytes, bytes = *element_count(extent) * element;
  bool raw = array.chain.empty();
  if (raw && value.length != bytes)
    return fail(Code::kCorrupt, "stored chunk has another length than its shape")
        .at_path(value.is_inline ? "" : store_.describe(value.object))
        .at_offset(value.offset)
        .with_found(fmt::format("{} bytes", value.length))
        .with_expected(fmt::format("{} bytes", bytes));
  Piece piece{{{start.begin(), start.end()}, {extent.begin(), extent.end()}}, {}, 0, {}};
  bool clipped = false;
  for (size_t d = 0; d < start.size(); ++d) {
    piece.box.extent[d] = std::min(extent[d], array.shape[d] - start[d]);
    clipped = clipped || piece.box.extent[d] != extent[d];
  }
  uint64_t length = value.length;
  if (clipped || !array.order.empty()) {
    piece.strides = chunk_strides(extent, array.order);
    uint64_t last = 0;
    for (size_t d = 0; d < start.size(); ++d)
      last += static_cast<uint64_t>((piece.box.extent[d] - 1) * piece.strides[d]);
    if (raw) length = (last + 1) * element;
  }
  piece.encoding = builder_.add_encoding({array.dtype, array.big_endian, array.chain, raw ? 0 : bytes});
  if (value.is_inline) {
    piece.place = builder_.add_literal(value.inline_value.first(length));
  } else {
    SHARDWRIGHT_ASSIGN(auto object, object_of(value.object));
    piece.place = {Place::kExtent, -1, object, value.offset, length};
  }
  return builder_.add_piece(piece);
}

Status ZarrCatalog::add_shards(ZarrValues& values, std::string_view path, const ZarrArray& array,
                               std::span<const Chunk> shards, bool fill_missing) {
  if (shards.empty()) return {};
  uint64_t chunks = *element_count(array.chunk) / *element_count(array.inner);
  SHARDWRIGHT_TRY(charge(checked_mul(chunks, shards.size()).value_or(kUnknown / 2)));
  uint64_t index_bytes = chunks * kEntryBytes + (array.index_has_sum ? kSumBytes : 0);
  // Batches, so that the indexes of many shards take no more than a few megabytes.
  size_t batch = std::max<uint64_t>(1, 4 * MiB / index_bytes);
  for (size_t first = 0; first < shards.size(); first += batch) {
    auto part = shards.subspan(first, std::min(batch, shards.size() - first));
    Bytes indexes(part.size() * index_bytes);
    std::vector<ReadOp> ops;
    for (size_t i = 0; i < part.size(); ++i) {
      const auto& value = part[i].value;
      if (value.length < index_bytes)
        return fail(Code::kCorrupt, "shard ends before its index")
            .at_path(values.describe(path))
            .with_found(fmt::format("{} bytes", value.length));
      auto into = MutableView(indexes).subspan(i * index_bytes, index_bytes);
      uint64_t at = array.index_first ? 0 : value.length - index_bytes;
      if (value.is_inline) {
        std::ranges::copy(value.inline_value.subspan(at, index_bytes), into.begin());
        continue;
      }
      SHARDWRIGHT_TRY(object_of(value.object));
      ops.push_back({value.object, value.offset + at, into});
    }
    if (!ops.empty()) SHARDWRIGHT_TRY(store_.read(ops));
    for (size_t i = 0; i < part.size(); ++i)
      SHARDWRIGHT_TRY(
          add_shard(array, part[i], View(indexes).subspan(i * index_bytes, index_bytes), fill_missing,
                    part[i].value.is_inline ? values.describe(path) : store_.describe(part[i].value.object)));
  }
  return {};
}

Status ZarrCatalog::add_shard(const ZarrArray& array, const Chunk& shard, View index, bool fill_missing,
                              const std::string& shown) {
  uint64_t index_at = shard.value.offset + (array.index_first ? 0 : shard.value.length - index.size());
  if (array.index_has_sum) {
    View entries = index.first(index.size() - kSumBytes);
    auto stored = load_le<uint32_t>(index.last(kSumBytes)), computed = crc32c(entries);
    if (computed != stored)
      return fail(Code::kCorrupt, "CRC-32C of a shard's index is wrong")
          .at_path(shown)
          .at_offset(index_at)
          .with_found(fmt::format("{:08x}", stored))
          .with_expected(fmt::format("{:08x}", computed));
  }
  auto counts = grid_of(array.chunk, array.inner);
  std::vector<int64_t> at(counts.size()), start(counts.size());
  uint64_t next = 0;
  do {
    auto offset = load_le<uint64_t>(index.subspan(next)), bytes = load_le<uint64_t>(index.subspan(next + 8));
    next += kEntryBytes;
    bool outside = false;
    Box box{start, array.inner};
    for (size_t d = 0; d < at.size(); ++d) {
      box.start[d] = start[d] = shard.start[d] + at[d] * array.inner[d];
      outside = outside || start[d] >= array.shape[d];
      box.extent[d] = std::min(array.inner[d], array.shape[d] - start[d]);
    }
    if (outside) continue;
    if (offset == kMissing && bytes == kMissing) {
      if (!fill_missing) return fail(Code::kNotFound, "a chunk of a shard is missing").at_path(shown);
      SHARDWRIGHT_TRY(add_fill(array, box));
      continue;
    }
    if (offset > shard.value.length || bytes > shard.value.length - offset)
      return fail(Code::kCorrupt, "a shard's index names bytes beyond it")
          .at_path(shown)
          .at_offset(index_at + next - kEntryBytes)
          .with_found(fmt::format("{} bytes at {}", bytes, offset))
          .with_expected(fmt::format("within {} bytes", shard.value.length));
    ZarrValue value = shard.value;
    value.offset += offset;
    value.length = bytes;
    if (value.is_inline) value.inline_value = value.inline_value.subspan(offset, bytes);
    SHARDWRIGHT_TRY(add_chunk(array, start, array.inner, value));
  } while (next_index(at, counts));
  return {};
}

}  // namespace shardwright
