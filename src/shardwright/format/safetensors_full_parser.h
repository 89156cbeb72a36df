/// The full JSON grammar of a safetensors header: what the fast scanner leaves alone. Private to safetensors_header.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/json.h"
#include "shardwright/format/safetensors_header.h"

namespace shardwright {

/// Events of nlohmann's SAX parser, which checks the JSON itself; this checks what it says. Memory: the names, once.
class SafetensorsFullParser {
 public:
  explicit SafetensorsFullParser(SafetensorsHeader& out) : out_(out) {}
  /// Fills names and entries, not sorted. `metadata`: the text of the `__metadata__` object; empty when there is none.
  Status run(std::string_view* metadata);

  bool null();
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(int64_t) { return other("a negative number"); }
  bool number_unsigned(uint64_t value);
  bool number_float(double, const std::string&) { return other("a number that is no integer below 2^64"); }
  bool string(std::string& value);
  bool binary(Json::binary_t&) { return other("binary"); }
  bool start_object(size_t);
  bool key(std::string& value);
  bool end_object();
  bool start_array(size_t);
  bool end_array();
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error);

 private:
  enum Where { kStart, kTop, kInfo, kShape, kOffsets, kMetadata, kIgnored };
  enum Field : unsigned { kNoField = 0, kDType = 1, kShapeField = 2, kOffsetsField = 4 };
  bool other(std::string_view what);  ///< a scalar that is at home only where values are ignored
  bool refuse(std::string message, std::string found = {}, std::string expected = {});
  bool deeper();
  bool end_info();
  bool at_metadata() const { return where_ == kTop && metadata_key_; }

  SafetensorsHeader& out_;
  Where where_ = kStart;
  Field field_ = kNoField;
  unsigned seen_ = 0;
  bool metadata_key_ = false, metadata_seen_ = false;
  int depth_ = 0, inner_ = 0;  ///< inner_: below the value that is skipped
  size_t offsets_ = 0, metadata_begin_ = 0, metadata_end_ = 0;
  SafetensorsHeader::Entry entry_{};
  std::vector<std::string> unknown_;  ///< fields of this tensor that the format does not know
  std::string name_;
  const char* cursor_ = nullptr;  ///< behind the last character taken
  Error error_;
  bool failed_ = false;
};

}  // namespace shardwright
