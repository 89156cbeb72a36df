/// For codecs whose input ends with bytes of their own, of a length known beforehand.
#pragma once

#include <algorithm>
#include <functional>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright::detail {

/// Holds back the last `tail` bytes of what was pushed; the rest goes on at once.
class TailKeeper {
 public:
  explicit TailKeeper(size_t tail) : tail_bytes_(tail) {}
  Status push(View in, const std::function<Status(View)>& pass) {
    uint64_t all = tail_.size() + in.size(), data = all > tail_bytes_ ? all - tail_bytes_ : 0;
    auto from_tail = static_cast<size_t>(std::min<uint64_t>(data, tail_.size()));
    if (from_tail > 0) SHARDWRIGHT_TRY(pass(View(tail_).first(from_tail)));
    tail_.erase(tail_.begin(), tail_.begin() + static_cast<ptrdiff_t>(from_tail));
    View now = in.first(data - from_tail), rest = in.subspan(data - from_tail);
    if (!now.empty()) SHARDWRIGHT_TRY(pass(now));
    tail_.insert(tail_.end(), rest.begin(), rest.end());
    return {};
  }
  bool complete() const { return tail_.size() == tail_bytes_; }
  View tail() const { return tail_; }

 private:
  const size_t tail_bytes_;
  Bytes tail_;
};

}  // namespace shardwright::detail
