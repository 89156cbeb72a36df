/// Memory for arrays that stay: side by side in large pages, given back one by one.
#pragma once

#include <memory>

#include "shardwright/base/memory_budget.h"

namespace shardwright {

/// Part of a block of memory. Destroyed, its whole pages go back to the system at once, whatever lives beside it; the block's addresses go with
/// its last part. Moves only.
class ArenaPart {
 public:
  ArenaPart() = default;
  ArenaPart(ArenaPart&& other) noexcept;
  ArenaPart& operator=(ArenaPart&& other) noexcept;
  ~ArenaPart();
  MutableView span() const { return bytes_; }

 private:
  friend class Arena;
  ArenaPart(std::shared_ptr<Slab> block, MutableView bytes) : block_(std::move(block)), bytes_(bytes) {}
  std::shared_ptr<Slab> block_;
  MutableView bytes_;
};

/// Hands out parts of blocks of 64 MiB, one after the other, at 64-byte boundaries; what has half a block or more gets one of its own. Page faults, not
/// copying, are what loading into fresh memory costs: in pages of 2 MiB there are few, and arrays smaller than a page share it. What was not
/// written to is not resident. Parts may outlive the arena. Not thread-safe.
class Arena {
 public:
  ArenaPart allocate(uint64_t bytes);  ///< aborts like operator new when the system has none

 private:
  std::shared_ptr<Slab> block_;
  uint64_t used_ = 0;
};

}  // namespace shardwright
