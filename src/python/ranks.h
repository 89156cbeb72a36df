/// Ranks as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "python/long_work.h"
#include "shardwright/comm/comm.h"

namespace shardwright::python {

/// Of any number: infinite is long; less than none, and what is no number, is none.
inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(seconds > 0 ? static_cast<int64_t>(std::min(seconds, 1e9) * 1000) : 0);
}

/// A Comm, and how long its calls wait. While it waits, Ctrl-C and progress are heard. One call at a time: a second, of another thread or from
/// within a callback, throws kInvalidArgument.
class Ranks {
 public:
  Ranks(std::unique_ptr<Comm> comm, double seconds) : comm_(std::move(comm)), seconds_(seconds) {}
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  double seconds() const { return seconds_; }
  void set_seconds(double seconds) { seconds_ = seconds; }
  std::chrono::milliseconds wait() const { return milliseconds_of(seconds_); }

  /// job(options, comm) without the GIL.
  template <class Job>
  auto run(LongWork& work, const Job& job) {
    if (busy_.exchange(true))
      throw Raised(fail(Code::kInvalidArgument, "the ranks are in another call")
                       .with_hint("one at a time, in the same order on all; not from within a callback"));
    const InCall call{*this};
    comm_->set_watch([&work] { return work.watch(); });
    return work.run([&](const JobOptions& options) { return job(options, *comm_); });
  }

 private:
  /// Over when the call is, also by an exception.
  struct InCall {
    Ranks& ranks;
    ~InCall() {
      ranks.comm_->set_watch({});
      ranks.busy_ = false;
    }
  };
  std::unique_ptr<Comm> comm_;
  double seconds_;
  std::atomic<bool> busy_ = false;
};

}  // namespace shardwright::python
