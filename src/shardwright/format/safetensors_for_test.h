/// For tests only: safetensors files as text, and catalogues as lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {

inline std::string safetensors_file(const std::string& header, const std::string& data = "") {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

/// `"name":{"dtype":"U8","shape":[size],"data_offsets":[begin,begin+size]}`
inline std::string u8_tensor(const std::string& name, uint64_t size, uint64_t begin = 0) {
  return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(size) + R"(],"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(begin + size) + "]}";
}

/// "name DTYPE [shape] object@offset+length", or "name DTYPE [shape] = kept" for a tie; catalogue order.
inline std::vector<std::string> lines_of(const Catalog& catalog) {
  std::vector<std::string> out;
  for (TensorId id = 0; id < catalog.size(); ++id) {
    auto spec = catalog.spec(id);
    std::string line =
        std::string(spec.name) + " " + std::string(dtype_row(spec.dtype).name) + " " + shape_text(spec.shape);
    if (catalog.same_as(id) != id) {
      line += " = " + std::string(catalog.spec(catalog.same_as(id)).name);
    } else if (auto flat = catalog.flat(id)) {
      line += " " + catalog.objects()[flat->place.object].key + "@" + std::to_string(flat->place.offset) + "+" +
              std::to_string(flat->place.length);
    }
    out.push_back(line);
  }
  return out;
}

inline std::string value_of(const Catalog& catalog, std::string_view key = "metadata") {
  const Value* value = catalog.value(key);
  return value == nullptr ? "none" : value->data;
}

}  // namespace shardwright::testing_support
