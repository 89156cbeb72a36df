/// How much anonymous memory this process took since the watch began.
#pragma once

#include <algorithm>
#include <chrono>

#include "shardwright/base/memory_budget.h"

namespace shardwright {

class MemoryWatch {
 public:
  MemoryWatch() : base_(resident_anonymous_bytes()) {}
  void sample() { peak_ = std::max(peak_, resident_anonymous_bytes()); }
  uint64_t peak() const { return peak_ > base_ ? peak_ - base_ : 0; }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  uint64_t base_, peak_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace shardwright
