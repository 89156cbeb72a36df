#include "cli/json_output.h"

#include <cmath>

namespace shardwright::cli {

void json_line(Output& output, const Json& value) { output.line(json_text(value)); }

void JsonArray::add(const Json& row) {
  next_row();
  output_.write(json_text(row));
}

void JsonArray::next_row() {
  output_.write(empty_ ? "\n" : ",\n");
  empty_ = false;
}

Json shape_json(std::span<const int64_t> shape) {
  Json out = Json::array();
  for (int64_t extent : shape) out.push_back(extent);
  return out;
}

Json json_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace shardwright::cli
