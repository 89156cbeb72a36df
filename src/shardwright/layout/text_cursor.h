/// Reads the small languages that shardings are written in. Private to layout/.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright {

/// A place in a text. take_* moves past what it found and the white space before it, or does not move.
class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool take(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  /// A number without sign that fits 63 bits.
  std::optional<int64_t> take_number() {
    skip_space();
    int64_t value = 0;
    if (at_ == text_.size() || text_[at_] == '-') return std::nullopt;
    auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (problem != std::errc()) return std::nullopt;
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  /// Letters, digits and '_'.
  std::optional<std::string> take_word() {
    skip_space();
    size_t end = at_;
    auto in_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (end < text_.size() && in_word(text_[end])) ++end;
    if (end == at_) return std::nullopt;
    std::string word(text_.substr(at_, end - at_));
    at_ = end;
    return word;
  }
  /// Between double quotes, without escapes.
  std::optional<std::string> take_quoted() {
    skip_space();
    if (at_ == text_.size() || text_[at_] != '"') return std::nullopt;
    size_t end = text_.find_first_of("\"\\", at_ + 1);
    if (end == text_.npos || text_[end] == '\\') return std::nullopt;
    std::string name(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return name;
  }
  bool done() {
    skip_space();
    return at_ == text_.size();
  }
  /// kInvalidArgument: the text cannot be read as `what`, with its beginning and the offset in bytes.
  Error error(std::string_view what, std::string expected) const {
    constexpr size_t kShown = 200;
    return fail(Code::kInvalidArgument,
                "cannot read the text as " + std::string(what) + ", from character " + std::to_string(at_) + " on")
        .with_found("'" + std::string(text_.substr(0, kShown)) + (text_.size() > kShown ? "...'" : "'"))
        .with_expected(std::move(expected));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace shardwright
