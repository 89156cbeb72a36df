/// The full JSON grammar of a hub index: what the fast scanner leaves alone. Private to hub_index.cc.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "shardwright/base/json.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// Events of nlohmann's SAX parser. Keeps no entry: memory does not grow with the map.
class HubIndexFullParser {
 public:
  using Add = std::function<Status(std::string_view name, std::string_view file)>;
  /// bare: the text is the map itself.
  HubIndexFullParser(std::string_view text, bool bare, Add add) : text_(text), bare_(bare), add_(std::move(add)) {}
  Status run();
  bool has_map() const { return map_seen_; }
  bool all_strings() const { return !other_values_; }      ///< at the top level
  std::string_view metadata() const { return metadata_; }  ///< its text, when it is an object
  bool odd_metadata() const { return metadata_seen_ && metadata_.empty(); }

  bool null() { return value("null"); }
  bool boolean(bool) { return value("a boolean"); }
  bool number_integer(int64_t) { return value("a number"); }
  bool number_unsigned(uint64_t) { return value("a number"); }
  bool number_float(double, const std::string&) { return value("a number"); }
  bool binary(Json::binary_t&) { return value("binary"); }
  bool string(std::string& value);
  bool key(std::string& value);
  bool start_object(size_t) { return open("an object"); }
  bool start_array(size_t) { return open("an array"); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error);

 private:
  /// Where an entry of the map is expected.
  bool in_map() const { return bare_ ? depth_ == 1 : depth_ == 2 && top_ == kMap; }
  bool value(std::string_view what);  ///< any value but a string or container
  bool open(std::string_view what);
  bool close();
  bool keep(Status status);
  size_t position() const { return static_cast<size_t>(cursor_ - text_.data()); }

  enum Top { kOtherKey, kMap, kMetadata };
  std::string_view text_, metadata_;
  bool bare_;
  Add add_;
  Top top_ = kOtherKey;
  std::string key_;
  int depth_ = 0;
  bool map_seen_ = false, metadata_seen_ = false, other_values_ = false, failed_ = false;
  size_t metadata_begin_ = 0;
  const char* cursor_ = nullptr;
  Error error_;
};

}  // namespace shardwright
