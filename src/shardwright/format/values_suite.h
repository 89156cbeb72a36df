/// For tests: the logical values of a tensor, decoded here with zlib alone, independent of our codecs and engine.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "shardwright/format/format.h"
#include "shardwright/tensor/convert.h"

namespace shardwright::testing {

inline std::string data_path(const std::string& name) { return std::string(SHARDWRIGHT_TEST_DATA) + "/" + name; }

inline Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return bytes_of(text);
}

/// Elements in reverse filter order; no checks of checksums.
inline Bytes undo(Bytes data, const CodecSpec& step, uint64_t decoded_bytes) {
  if (step.name == "fletcher32") {
    data.resize(data.size() - 4);
    return data;
  }
  Bytes out(decoded_bytes);
  if (step.name == "zlib") {
    uLongf size = out.size();
    EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(data.data()),
                         data.size()),
              Z_OK);
    EXPECT_EQ(size, decoded_bytes);
    return out;
  }
  EXPECT_EQ(step.name, "shuffle");
  size_t width = step.parameter, count = data.size() / width;
  for (size_t i = 0; i < count; ++i)
    for (size_t b = 0; b < width; ++b) out[i * width + b] = data[b * count + i];
  return out;
}

/// Bytes of one element per index, C order, little-endian. Block types: the piece must be the whole tensor.
inline Bytes logical_bytes(Store& store, const Catalog& catalog, TensorId id) {
  auto spec = catalog.spec(id);
  Bytes out(spec.nbytes(), std::byte{0xEE});
  size_t width = dtype_row(spec.dtype).block_bytes;
  auto strides = c_strides(spec.shape);
  for (const auto& piece : catalog.pieces(id)) {
    const auto& encoding = catalog.encoding(piece.encoding);
    Bytes data(piece.place.length);
    if (piece.place.site == Place::kLiteral) {
      auto literal = catalog.literal(piece.place);
      data.assign(literal.begin(), literal.end());
    } else {
      ReadOp op{catalog.objects()[piece.place.object].key, piece.place.offset, data};
      auto read = store.read({&op, 1});
      EXPECT_TRUE(read.ok()) << read.error().text();
    }
    for (size_t i = encoding.chain.size(); i-- > 0;)
      data = undo(std::move(data), encoding.chain[i], encoding.decoded_bytes);
    if (dtype_row(spec.dtype).block_elems != 1) return data;
    auto local = layout_of(piece).strides;
    std::vector<int64_t> index(spec.shape.size());
    for (uint64_t n = 0; n < piece.box.elements(); ++n) {
      int64_t from = 0, to = 0;
      for (size_t d = 0; d < index.size(); ++d) {
        from += index[d] * local[d];
        to += (piece.box.start[d] + index[d]) * strides[d];
      }
      auto* source = data.data() + static_cast<size_t>(from) * width;
      auto* target = out.data() + static_cast<size_t>(to) * width;
      if ((static_cast<size_t>(from) + 1) * width > data.size()) {
        ADD_FAILURE() << "strides leave the piece";
        return out;
      }
      std::copy(source, source + width, target);
      size_t unit = encoding.big_endian ? swap_unit_bytes(spec.dtype) : 1;
      for (size_t at = 0; at < width; at += unit) std::reverse(target + at, target + at + unit);
      for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < piece.box.extent[d]) break;
        index[d] = 0;
      }
    }
  }
  return out;
}

/// Every tensor by name.
inline std::map<std::string, Bytes> all_values(Store& store, const Catalog& catalog) {
  std::map<std::string, Bytes> out;
  for (TensorId id = 0; id < catalog.size(); ++id)
    out.emplace(catalog.spec(id).name, logical_bytes(store, catalog, id));
  return out;
}

}  // namespace shardwright::testing
