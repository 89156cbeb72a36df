/// Tensors held still: copied into memory that is used again and again.
#pragma once

#include "shardwright/engine/execute.h"

namespace shardwright {

/// Memory for one copy of what is saved, in pages of 2 MiB, kept from save to save: a fresh copy costs page faults, three to eight times what copying
/// costs. Copied past the caches. One thread at a time.
class Snapshot {
 public:
  explicit Snapshot(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  /// Copies every piece in memory, by several threads; those that are called are produced on this thread, whole. What was held before is
  /// overwritten. Returns the same tensors, ties and values, with pieces in this memory, valid until the next hold() or release().
  /// threads: 0: as many as pay. Errors: kResourceExhausted, with the number it needs, before anything is copied, also
  /// where the system has no such memory; those of produce.
  Result<Catalog> hold(const Catalog& tensors, const Calls& calls, int threads = 0);
  /// Bytes that hold() needs for these tensors.
  static uint64_t needed_bytes(const Catalog& tensors);
  void release() { memory_ = {}; }
  uint64_t memory_bytes() const { return memory_.size(); }

 private:
  const uint64_t limit_bytes_;
  Slab memory_;
};

}  // namespace shardwright
