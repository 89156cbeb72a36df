// UTF-8 and the JSON strings made of it (text.h).
#include "shardwright/base/text.h"

namespace shardwright {
namespace {

struct Sequence {
  size_t bytes;  ///< at least 1
  bool valid;
};

/// The character at the start of `text`; when it is none, the longest start of one, which readers replace by one U+FFFD
/// (Unicode, table 3-7 and "maximal subparts"). REQUIRES: text is not empty.
Sequence next_sequence(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xc2 || first > 0xf4) return {1, false};
  size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte rules out overlong forms, surrogates and values past U+10FFFF.
  unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {length, true};
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    out += c;
    return;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u00";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    Sequence next = next_sequence(text);
    if (!next.valid) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

std::string json_quote(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  out += '"';
  while (!text.empty()) {
    Sequence next = next_sequence(text);
    if (!next.valid) {
      out += "\xef\xbf\xbd";
    } else if (next.bytes == 1) {
      append_escaped(out, text[0]);
    } else {
      out += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  out += '"';
  return out;
}

}  // namespace shardwright
