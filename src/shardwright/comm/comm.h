/// Ranks of a job. Only gathering and exchanging; everything else is built on them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

using Deadline = std::chrono::steady_clock::time_point;
/// A time longer than the clock can tell is as good as ten years.
inline Deadline deadline_in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(time, std::chrono::hours(24 * 3652));
}

/// Called about 20 times a second by whoever waits, on its thread: an error ends the wait.
using Watch = std::function<Status()>;

/// One call at a time, of whichever thread; work on two threads takes a clone(). All ranks make the same calls in the same order. No call waits
/// beyond its deadline: kUnavailable then, with the ranks that are missing. One rank's failure is everyone's: the others are told, and their call
/// at hand or the next one fails with the same error; every later one does. What must have happened everywhere before it counts is closed with
/// agree().
class Comm {
 public:
  struct Part {
    int rank;
    MutableView bytes;
  };
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A channel of its own over the same ranks: it may outlive this one, and fails apart from it. Collective; waits for a minute at most.
  virtual Result<std::unique_ptr<Comm>> clone() = 0;
  /// Every rank's bytes, by rank; they may differ in length. A barrier is this with nothing, agree() this with an error.
  virtual Result<std::vector<Bytes>> all_gather(View mine, Deadline deadline) = 0;
  /// Sends and receives at once; at most one part per peer and direction, sizes agreed beforehand. Parts to oneself are copied. Parts stay the
  /// caller's, and may change when this returns; nobody waits for ranks that it exchanges nothing with.
  /// Errors: kInvalidArgument for ranks that do not exist, second parts, and parts of another size than was sent.
  virtual Status exchange(std::span<const Part> send, std::span<const Part> receive, Deadline deadline) = 0;
  /// Says that this rank cannot go on, in the middle of common work: this and every later call, here and elsewhere, fails with `why`.
  virtual void abandon(const Error& why) = 0;
  /// For waits from now on; empty: none. Returns the one before.
  virtual Watch set_watch(Watch watch) = 0;
};

/// The only rank there is.
std::unique_ptr<Comm> single_process();

/// Plain processes that share a directory (which is made): one that calls with rank 0, and one with each other rank below `size`. Messages
/// are files, written aside and renamed. What an earlier job left there is told apart and removed. A rank whose process has ended is
/// noticed at once where the file system has locks, else when the deadline passes.
/// Errors: kUnavailable when not all have come by the deadline (named), or another job meets there; kInvalidArgument when two come as one
/// rank, or with different sizes: on every rank.
Result<std::unique_ptr<Comm>> meet_in_directory(const std::string& directory, int rank, int size, Deadline deadline,
                                                const Watch& watch = {});

/// Makes one outcome of every rank's own: ok when all are ok; else, everywhere, the error of the lowest rank that failed, with the rank in
/// its context. Closes a piece of common work. The Comm stays usable.
Status agree(Comm& comm, const Status& mine, Deadline deadline);

/// What rank 0 gives, on every rank. Rank 0 waits for nobody, but where the carrier must hand over.
Result<Bytes> broadcast(Comm& comm, View mine, Deadline deadline);

}  // namespace shardwright
