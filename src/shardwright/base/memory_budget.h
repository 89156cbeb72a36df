/// The hard limit on what the engine allocates while it runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>

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
/// no later task; then nothing can hang. Thread-safe. Released slabs are kept and reused.
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
  /// REQUIRES: 0 < bytes <= limit().
  Grant acquire(uint64_t bytes, const std::stop_token& stop);
  uint64_t limit() const { return limit_; }
  uint64_t peak() const;  ///< most bytes held at once so far, kept slabs included

 private:
  void release(Slab slab, uint64_t bytes);
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  uint64_t limit_, used_ = 0, peak_ = 0, next_ticket_ = 0, serving_ = 0;
  std::vector<Slab> idle_;
  uint64_t idle_bytes_ = 0;
};

/// Anonymous resident memory of this process now, and its highest value since the sampler started.
uint64_t resident_anonymous_bytes();

}  // namespace shardwright
