#include "shardwright/format/hub_index_full_parser.h"

#include "shardwright/base/json_sax.h"
#include "shardwright/base/text.h"

namespace shardwright {

Status HubIndexFullParser::run() {
  SHARDWRIGHT_TRY(detail::refuse_odd_bytes(text_, "index", 0));
  bool done = detail::sax_parse(text_, &cursor_, this);
  if (failed_) return std::move(error_);
  if (!done) return fail(Code::kCorrupt, "index is not JSON");
  return {};
}

bool HubIndexFullParser::keep(Status status) {
  if (status.ok()) return true;
  if (failed_) return false;
  error_ = std::move(status.error());
  if (error_.offset == kNoOffset) error_.offset = position();
  failed_ = true;
  return false;
}

bool HubIndexFullParser::parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
  return keep(detail::not_json("index", position, error, 0));
}

bool HubIndexFullParser::key(std::string& value) {
  if (depth_ == 1 && !bare_) {
    top_ = value == "weight_map" ? kMap : value == "metadata" ? kMetadata : kOtherKey;
    if ((top_ == kMap && map_seen_) || (top_ == kMetadata && metadata_seen_))
      return keep(fail(Code::kCorrupt, "key " + json_quote(value) + " is given twice"));
    map_seen_ |= top_ == kMap;
    metadata_seen_ |= top_ == kMetadata;
  }
  if (in_map()) key_ = std::move(value);
  return true;
}

bool HubIndexFullParser::string(std::string& file) {
  if (in_map()) return keep(add_(key_, file));
  if (depth_ == 1 && top_ == kMap) return value("a string");
  return depth_ > 0 || value("a string");
}

bool HubIndexFullParser::value(std::string_view what) {
  auto wrong = [&](std::string message, std::string expected) {
    return keep(
        fail(Code::kCorrupt, std::move(message)).with_found(std::string(what)).with_expected(std::move(expected)));
  };
  if (depth_ == 0) return wrong("index is not an object", R"({"metadata": {...}, "weight_map": {...}})");
  if (in_map()) {
    wrong("value in weight_map is not a file name", "a string");
    error_.tensor = key_;
    return false;
  }
  if (depth_ == 1 && top_ == kMap) return wrong("weight_map is not an object", R"({"tensor name": "file", ...})");
  other_values_ |= depth_ == 1;
  return true;
}

bool HubIndexFullParser::open(std::string_view what) {
  if (depth_ == detail::kMaxJsonDepth) return keep(fail(Code::kCorrupt, "JSON is nested too deep"));
  bool object = what == "an object";
  bool at_home = depth_ == 0 || (depth_ == 1 && top_ == kMap && !bare_);
  if (!(at_home && object) && !value(what)) return false;
  if (depth_ == 1 && top_ == kMetadata && object) metadata_begin_ = position() - 1;
  other_values_ |= depth_ == 1;
  ++depth_;
  return true;
}

bool HubIndexFullParser::close() {
  --depth_;
  if (depth_ == 1 && top_ == kMetadata && !bare_ && text_[position() - 1] == '}')
    metadata_ = text_.substr(metadata_begin_, position() - metadata_begin_);
  return true;
}

}  // namespace shardwright
