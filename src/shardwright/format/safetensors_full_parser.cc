#include "shardwright/format/safetensors_full_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/json_sax.h"
#include "shardwright/base/text.h"

namespace shardwright {
namespace {

constexpr size_t kMaxUnknownFields = 64;

}  // namespace

Status SafetensorsFullParser::run(std::string_view* metadata) {
  auto text = out_.text_;
  SHARDWRIGHT_TRY(detail::refuse_odd_bytes(text, "header", 8));
  bool done = detail::sax_parse(text, &cursor_, this);
  if (failed_) return std::move(error_);
  if (!done) return fail(Code::kCorrupt, "header is not JSON").at_offset(8);
  if (metadata_end_ > 0) *metadata = text.substr(metadata_begin_, metadata_end_ - metadata_begin_);
  return {};
}

bool SafetensorsFullParser::refuse(std::string message, std::string found, std::string expected) {
  if (failed_) return false;
  failed_ = true;
  error_ = fail(Code::kCorrupt, std::move(message))
               .at_offset(8 + static_cast<uint64_t>(cursor_ - out_.text_.data()))
               .with_found(std::move(found))
               .with_expected(std::move(expected));
  if (where_ == kInfo || where_ == kShape || where_ == kOffsets || where_ == kIgnored ||
      (where_ == kTop && !metadata_key_))
    error_.tensor = name_;
  return false;
}

bool SafetensorsFullParser::parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
  where_ = kStart;
  if (!failed_) error_ = detail::not_json("header", position, error, 8);
  failed_ = true;
  return false;
}

bool SafetensorsFullParser::deeper() {
  if (++depth_ <= detail::kMaxJsonDepth) return true;
  return refuse("JSON is nested too deep", {}, fmt::format("at most {} levels", detail::kMaxJsonDepth));
}

bool SafetensorsFullParser::other(std::string_view what) {
  std::string found(what);
  switch (where_) {
    case kMetadata:
    case kIgnored: return true;
    case kStart: return refuse("header is not an object", found, "{\"tensor name\": {...}, ...}");
    case kTop:
      if (metadata_key_) return refuse("__metadata__ is not an object", found, "an object of strings");
      return refuse("tensor info is not an object", found, R"({"dtype", "shape", "data_offsets"})");
    case kShape: return refuse("shape must be integers", found, "0 to 2^64 - 1");
    case kOffsets: return refuse("data_offsets must be integers", found, "0 to 2^64 - 1");
    case kInfo: break;
  }
  if (field_ == kDType) return refuse("dtype must be a string", found);
  if (field_ == kShapeField) return refuse("shape must be an array", found);
  if (field_ == kOffsetsField) return refuse("data_offsets must be an array", found);
  return true;
}

bool SafetensorsFullParser::null() {
  if (at_metadata()) return true;  // safetensors reads it as none
  return other("null");
}

bool SafetensorsFullParser::number_unsigned(uint64_t value) {
  if (where_ == kShape) return true;
  if (where_ != kOffsets) return other("a number");
  if (offsets_ < 2) (offsets_ == 0 ? entry_.begin : entry_.end) = value;
  ++offsets_;
  return true;
}

bool SafetensorsFullParser::string(std::string& value) {
  if (where_ != kInfo || field_ != kDType) return other("a string");
  auto dtype = dtype_from_name(value);
  if (!dtype || !safetensors_has(*dtype))
    return refuse("unknown dtype", json_quote(value.substr(0, 100)), "a dtype of safetensors, as BF16 or F32");
  entry_.dtype = *dtype;
  return true;
}

bool SafetensorsFullParser::start_object(size_t) {
  if (!deeper()) return false;
  switch (where_) {
    case kStart: where_ = kTop; return true;
    case kTop:
      if (metadata_key_) {
        metadata_begin_ = static_cast<size_t>(cursor_ - out_.text_.data()) - 1;
        where_ = kMetadata;
        inner_ = 1;
        return true;
      }
      where_ = kInfo;
      seen_ = 0;
      unknown_.clear();
      return true;
    case kInfo:
      if (field_ != kNoField) return other("an object");
      where_ = kIgnored;
      inner_ = 1;
      return true;
    case kMetadata:
    case kIgnored: ++inner_; return true;
    default: return other("an object");
  }
}

bool SafetensorsFullParser::start_array(size_t) {
  if (!deeper()) return false;
  if (where_ == kMetadata || where_ == kIgnored) return ++inner_, true;
  if (where_ != kInfo || field_ == kDType) return other("an array");
  if (field_ == kNoField) {
    where_ = kIgnored;
    inner_ = 1;
  } else if (field_ == kShapeField) {
    where_ = kShape;
    entry_.shape = static_cast<uint32_t>(cursor_ - out_.text_.data());
  } else {
    where_ = kOffsets;
    offsets_ = 0;
  }
  return true;
}

bool SafetensorsFullParser::key(std::string& value) {
  if (where_ == kMetadata || where_ == kIgnored) return true;
  if (where_ == kTop) {
    metadata_key_ = value == kSafetensorsMetadataKey;
    name_ = value;
    if (metadata_key_ && metadata_seen_) return refuse("__metadata__ is given twice");
    metadata_seen_ |= metadata_key_;
    return true;
  }
  field_ = value == "dtype"          ? kDType
           : value == "shape"        ? kShapeField
           : value == "data_offsets" ? kOffsetsField
                                     : kNoField;
  bool twice =
      field_ != kNoField ? (seen_ & field_) != 0 : std::find(unknown_.begin(), unknown_.end(), value) != unknown_.end();
  if (twice) return refuse("duplicate field " + json_quote(value.substr(0, 100)));
  seen_ |= field_;
  if (field_ != kNoField) return true;
  if (unknown_.size() == kMaxUnknownFields)
    return refuse("too many unknown fields", {}, "dtype, shape and data_offsets");
  unknown_.push_back(value);
  return true;
}

bool SafetensorsFullParser::end_info() {
  for (auto [bit, name] : {std::pair{kDType, "dtype"}, {kShapeField, "shape"}, {kOffsetsField, "data_offsets"}})
    if ((seen_ & bit) == 0) return refuse(fmt::format("missing field \"{}\"", name));
  entry_.name = static_cast<uint32_t>(out_.unescaped_.size());
  entry_.name_length = static_cast<uint32_t>(name_.size());
  out_.unescaped_ += name_;
  out_.name_bytes_ += name_.size();
  out_.entries_.push_back(entry_);
  where_ = kTop;
  return true;
}

bool SafetensorsFullParser::end_object() {
  --depth_;
  if (where_ == kInfo) return end_info();
  if (where_ != kMetadata && where_ != kIgnored) return true;
  if (--inner_ > 0) return true;
  if (where_ == kMetadata) metadata_end_ = static_cast<size_t>(cursor_ - out_.text_.data());
  where_ = where_ == kMetadata ? kTop : kInfo;
  return true;
}

bool SafetensorsFullParser::end_array() {
  --depth_;
  if (where_ == kOffsets && offsets_ != 2)
    return refuse("data_offsets must be two numbers", fmt::format("{}", offsets_), "[begin, end]");
  // Beside these two only fields of a tensor that are ignored can be arrays; __metadata__ itself is none.
  if (where_ == kShape || where_ == kOffsets || --inner_ == 0) where_ = kInfo;
  return true;
}

}  // namespace shardwright
