/// JSON on stdout.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/output.h"
#include "shardwright/base/json.h"

namespace shardwright::cli {

/// One value on a line of its own.
void json_line(Output& output, const Json& value);

/// The rows of a JSON array, one on a line, as they come.
class JsonArray {
 public:
  explicit JsonArray(Output& output) : output_(output) { output_.write("["); }
  ~JsonArray() { output_.line(empty_ ? "]" : "\n]"); }
  JsonArray(const JsonArray&) = delete;
  JsonArray& operator=(const JsonArray&) = delete;
  void add(const Json& row);
  /// For rows that are formatted by hand: writes the separator; the row's text goes to output.buffer() next.
  void next_row();

 private:
  Output& output_;
  bool empty_ = true;
};

Json shape_json(std::span<const int64_t> shape);
/// The value, or null for "".
Json json_or_null(const std::string& text);
/// A number, or "NaN", "Infinity", "-Infinity", which JSON has no numbers for.
Json json_number(double value);

}  // namespace shardwright::cli
