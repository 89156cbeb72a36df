/// Numbers and text in the order in which another process of this program wrote them; nothing in them is trusted.
#pragma once

#include <string_view>

#include "shardwright/base/bytes.h"

namespace shardwright {

/// Takes bytes apart from front to back, little-endian. After a short read `bad` is set, and all that follows is zero and empty.
class ByteReader {
 public:
  explicit ByteReader(View bytes) : rest_(bytes) {}
  template <class T>
  T number() {
    View raw = take(sizeof(T));
    return bad ? T{} : load_le<T>(raw);
  }
  /// What append_sized() wrote.
  View bytes() { return take(number<uint64_t>()); }
  std::string_view text() { return text_of(bytes()); }
  /// A count of things that take at least `least` bytes each: no loop longer than the input.
  size_t count(size_t least) {
    auto value = number<uint64_t>();
    if (value > rest_.size() / least) bad = true;
    return bad ? 0 : value;
  }
  bool at_end() const { return rest_.empty(); }
  bool bad = false;

 private:
  View take(uint64_t size) {
    if (size > rest_.size()) bad = true;
    if (bad) return {};
    View out = rest_.first(size);
    rest_ = rest_.subspan(size);
    return out;
  }
  View rest_;
};

/// Length, then the bytes.
inline void append_sized(Bytes& out, std::string_view text) {
  append_le<uint64_t>(out, text.size());
  auto view = view_of(text);
  out.insert(out.end(), view.begin(), view.end());
}

}  // namespace shardwright
