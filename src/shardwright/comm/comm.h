/// Ranks of a job. Only gathering and exchanging; everything else is built on them.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

using Deadline = std::chrono::steady_clock::time_point;

/// Used by one thread only: the caller of execute(), or a manager's thread with its clone(). Every call has a deadline and the same
/// outcome on all ranks: one rank's failure is everyone's, and names it.
class Comm {
 public:
  struct Part {
    int rank;
    MutableView bytes;
  };
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A channel of its own over the same ranks. Collective.
  virtual Result<std::unique_ptr<Comm>> clone() = 0;
  /// Every rank's bytes, by rank. Barrier, broadcast and agreement are calls of this.
  virtual Result<std::vector<Bytes>> all_gather(View mine, Deadline deadline) = 0;
  /// Sends and receives at once; at most one part per peer and direction, sizes agreed beforehand. Parts to oneself are copied.
  virtual Status exchange(std::span<const Part> send, std::span<const Part> receive, Deadline deadline) = 0;
};

/// The only rank there is.
std::unique_ptr<Comm> single_process();

}  // namespace shardwright
