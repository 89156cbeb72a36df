/// How a Catalog is stored: struct of arrays in a few arenas. Private to catalog*.cc.
#pragma once

#include <map>

#include "shardwright/format/catalog.h"

namespace shardwright {

inline constexpr uint32_t kNone = ~0u;

struct Catalog::Data {
  struct Row {
    uint64_t name_offset;
    uint64_t shape_index;  ///< in `shapes`
    uint32_t name_bytes;
    uint32_t first_piece, piece_count;
    TensorId same_as;
    uint16_t rank;
    DType dtype;
  };
  struct StoredPiece {
    uint64_t offset, length;
    ObjectId object;
    int32_t rank;
    uint32_t encoding;
    uint32_t box;      ///< index in `numbers` of start[rank], extent[rank]; kNone: the whole tensor
    uint32_t strides;  ///< index in `numbers` of strides[rank]; kNone: C order of the box
    Place::Site site;
  };
  std::string names;
  std::vector<Row> rows;
  std::vector<int64_t> shapes;
  std::vector<StoredPiece> pieces;
  std::vector<int64_t> numbers;
  std::vector<TensorId> by_name;  ///< ids in name order
  std::vector<Encoding> encodings;
  Bytes literals;
  std::vector<ObjectInfo> objects;
  std::vector<std::string> members;
  size_t entry_count = 0, ties = 0;
  std::map<std::string, Value, std::less<>> values;
  std::vector<SideFile> side_files;

  std::string_view name(TensorId id) const {
    return std::string_view(names).substr(rows[id].name_offset, rows[id].name_bytes);
  }
  std::span<const int64_t> shape(TensorId id) const {
    return std::span(shapes).subspan(rows[id].shape_index, rows[id].rank);
  }
  Box box_of(const Row& row, const StoredPiece& piece) const {
    auto dims = std::span(shapes).subspan(row.shape_index, row.rank);
    if (piece.box == kNone) return Box::whole(dims);
    auto at = numbers.begin() + piece.box;
    return {{at, at + row.rank}, {at + row.rank, at + row.rank + row.rank}};
  }
};

}  // namespace shardwright
