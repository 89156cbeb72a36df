/// The hard limit on what the engine allocates while it runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <stop_token>
#include <vector>

#include "shardwright/base/bytes.h"

namespace shardwright {

/// Bytes in 2 MiB-aligned anonymous memory with huge pages advised; small requests come from the heap. Moves only.
class Slab {
 public:
  Slab() = default;
  static Slab allocate(uint64_t bytes);  ///< aborts like operator new when the system has none
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;
  ~Slab();
  MutableView span() const { return {data_, size_}; }
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0, mapped_ = 0;
};

/// Grants bytes first come, first served: a large request is never overtaken by a later small one, so that the order of grants is
/// the order of requests. Invariant of the engine (decision 7): a task asks once, for all it needs, in plan order, and waits for
/// no later task; then nothing can hang. "In plan order" takes a lock of the caller around choosing the task and acquire(): else a
/// later task may ask first. Thread-safe. Released slabs are kept and reused.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit_bytes) : limit_(limit_bytes) {}
  class Grant {
   public:
    Grant() = default;
    Grant(Grant&& other) noexcept;
    Grant& operator=(Grant&& other) noexcept;
    ~Grant();
    MutableView span() const { return slab_.span().first(bytes_); }
    uint64_t bytes() const { return bytes_; }

   private:
    friend class MemoryBudget;
    MemoryBudget* budget_ = nullptr;
    Slab slab_;
    uint64_t bytes_ = 0;
  };
  /// Waits for its turn and for room. nullopt-like empty Grant (bytes() == 0) when `stop` was requested.
  /// REQUIRES: 0 < bytes <= limit(); the grant does not outlive the budget.
  Grant acquire(uint64_t bytes, const std::stop_token& stop);
  uint64_t limit() const { return limit_; }
  uint64_t peak() const;  ///< most bytes held at once so far, kept slabs included

 private:
  void release(Slab slab);
  Slab take_idle(uint64_t bytes);  ///< a kept slab of about that size; an empty one when there is none
  std::vector<Slab> drop_idle();   ///< kept slabs that no longer fit beside what is used
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  const uint64_t limit_;
  // Below: guarded by mutex_. A slab counts with its whole size. used_ + idle_bytes_ <= limit_.
  uint64_t used_ = 0, peak_ = 0, idle_bytes_ = 0, next_ticket_ = 0;
  std::deque<uint64_t> waiting_;  ///< tickets, first come first
  std::vector<Slab> idle_;        ///< released longest ago first
};

/// Anonymous resident memory of this process now; 0 where the system does not tell.
uint64_t resident_anonymous_bytes();

}  // namespace shardwright
