/// A cursor over JSON text in the plain form that writers produce: the fast path of large headers and indexes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace shardwright::detail {

/// Every method skips white space before what it looks for and returns false when that is not there. Where only a full parser can go on (escapes
/// in strings, signs, fractions, broken text) the caller starts again with one; nothing is decided here. A failed symbol() leaves the
/// cursor before what is there, the others anywhere. REQUIRES: the text is UTF-8.
class JsonScan {
 public:
  explicit JsonScan(std::string_view text, size_t position = 0)
      : begin_(text.data()), at_(text.data() + position), end_(text.data() + text.size()) {}

  /// Index in the text of the next character to be looked at.
  size_t position() const { return static_cast<size_t>(at_ - begin_); }

  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  bool symbol(char wanted) {
    if (at_ != end_ && *at_ == wanted) return ++at_, true;
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    return ++at_, true;
  }
  /// A string without escapes; `out` points into the text.
  bool string(std::string_view& out) {
    if (!symbol('"')) return false;
    const char* first = at_;
    if (!find_special()) return false;
    if (*at_ != '"') return false;
    out = {first, static_cast<size_t>(at_ - first)};
    return ++at_, true;
  }
  /// Any string, escapes not looked into; `out` is what lies between the quotes.
  bool raw_string(std::string_view& out) {
    if (!symbol('"')) return false;
    const char* first = at_;
    while (find_special() && *at_ == '\\' && end_ - at_ > 1) at_ += 2;
    if (at_ >= end_ || *at_ != '"') return false;
    out = {first, static_cast<size_t>(at_ - first)};
    return ++at_, true;
  }
  /// An object, found by its brackets and strings alone; `out` is its text, which may still be no JSON.
  bool raw_object(std::string_view& out) {
    skip_space();
    const char* first = at_;
    if (at_ == end_ || *at_ != '{') return false;
    for (int64_t depth = 0; at_ != end_;) {
      std::string_view ignored;
      if (*at_ == '"') {
        if (!raw_string(ignored)) return false;
        continue;
      }
      char c = *at_++;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) {
        out = {first, static_cast<size_t>(at_ - first)};
        return true;
      }
    }
    return false;
  }
  /// Digits only, no leading zero, below 2^64. What follows them must not make another number of them.
  bool number(uint64_t& out) {
    skip_space();
    const char* first = at_;
    uint64_t value = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') {
      if (__builtin_mul_overflow(value, 10u, &value) ||
          __builtin_add_overflow(value, static_cast<uint64_t>(*at_ - '0'), &value))
        return false;
      ++at_;
    }
    if (at_ == first || (*first == '0' && at_ - first > 1)) return false;
    if (at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) return false;
    out = value;
    return true;
  }

 private:
  /// Moves to the next quote, backslash or control character; false when there is none. Eight bytes at a time: names are most of the text.
  bool find_special() {
    constexpr uint64_t kOnes = 0x0101010101010101u, kHighs = 0x8080808080808080u;
    while (end_ - at_ >= 8) {
      uint64_t word;
      std::memcpy(&word, at_, 8);
      uint64_t quote = word ^ (kOnes * '"'), slash = word ^ (kOnes * '\\');
      // The lowest set bit is exact; borrows only disturb higher ones.
      uint64_t found =
          (((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash) | ((word - kOnes * 0x20) & ~word)) & kHighs;
      if (found != 0) {
        at_ += std::countr_zero(found) / 8;
        return true;
      }
      at_ += 8;
    }
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) ++at_;
    return at_ != end_;
  }

  const char *begin_, *at_, *end_;
};

/// True when no byte has its high bit set.
inline bool is_ascii(std::string_view text) {
  size_t i = 0;
  uint64_t seen = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    seen |= word;
  }
  for (; i < text.size(); ++i) seen |= static_cast<unsigned char>(text[i]) & 0x80u;
  return (seen & 0x8080808080808080u) == 0;
}

}  // namespace shardwright::detail
