/// What our parsers of JSON texts share: nlohmann's SAX parser, told where it is, and strict where it is lax.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"

namespace shardwright::detail {

inline constexpr int kMaxJsonDepth = 128;  ///< as parse_json and serde_json

/// Tells how far the parser has read, which SAX events do not.
class TrackedIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  TrackedIterator() = default;
  TrackedIterator(const char* at, const char** mirror) : at_(at), mirror_(mirror) {}
  reference operator*() const { return *at_; }
  TrackedIterator& operator++() {
    *mirror_ = ++at_;
    return *this;
  }
  TrackedIterator operator++(int) {
    auto old = *this;
    ++*this;
    return old;
  }
  bool operator==(const TrackedIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_ = nullptr;
  const char** mirror_ = nullptr;
};

/// `cursor` is behind the last character taken while events run: just behind the bracket in start_ and end_ events.
template <class Handler>
bool sax_parse(std::string_view text, const char** cursor, Handler* handler) {
  *cursor = text.data();
  TrackedIterator first(text.data(), cursor), last(text.data() + text.size(), cursor);
  return nlohmann::json::sax_parse(first, last, handler);
}

/// What nlohmann lets pass: it skips a byte order mark and takes a NUL for the end of the text. `base`: offset of the text in its file.
inline Status refuse_odd_bytes(std::string_view text, std::string_view what, uint64_t base) {
  if (text.starts_with("\xEF\xBB\xBF"))
    return fail(Code::kCorrupt, std::string(what) + " is not JSON: it begins with a byte order mark").at_offset(base);
  if (auto nul = text.find('\0'); nul != text.npos)
    return fail(Code::kCorrupt, std::string(what) + " is not JSON: it contains a NUL byte").at_offset(base + nul);
  return {};
}

/// nlohmann says "[json.exception.parse_error.101] parse error at line 1, column 2: cause"; this keeps the cause, but not the whole of a
/// token of any length that it quotes.
inline std::string cause_of(const nlohmann::detail::exception& exception) {
  constexpr size_t kMost = 160;
  std::string_view cause = exception.what();
  if (auto at = cause.find("] "); at != cause.npos) cause.remove_prefix(at + 2);
  if (auto at = cause.find(": "); cause.starts_with("parse error at") && at != cause.npos) cause.remove_prefix(at + 2);
  std::string quoted = json_quote(cause.substr(0, kMost));
  return quoted.substr(1, quoted.size() - 2) + (cause.size() > kMost ? "..." : "");
}

/// position: as nlohmann counts it, from 1; 0 before the first character.
inline Error not_json(std::string_view what, size_t position, const nlohmann::detail::exception& exception,
                      uint64_t base) {
  return fail(Code::kCorrupt, std::string(what) + " is not JSON: " + cause_of(exception))
      .at_offset(base + (position == 0 ? 0 : position - 1));
}

}  // namespace shardwright::detail
