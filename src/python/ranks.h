/// Ranks as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>

#include "python/long_work.h"
#include "shardwright/comm/comm.h"

namespace shardwright::python {

/// A Comm, and how long its calls wait. While it waits, Ctrl-C and progress are heard.
class Ranks {
 public:
  Ranks(std::unique_ptr<Comm> comm, double seconds) : comm_(std::move(comm)), seconds_(seconds) {}
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  double seconds() const { return seconds_; }
  void set_seconds(double seconds) { seconds_ = seconds; }
  std::chrono::milliseconds wait() const { return std::chrono::milliseconds(static_cast<int64_t>(seconds_ * 1000)); }

  /// job(options, comm) without the GIL.
  template <class Job>
  auto run(LongWork& work, const Job& job) {
    comm_->set_watch([&work] { return work.watch(); });
    return work.run([&](const JobOptions& options) {
      auto result = job(options, *comm_);
      comm_->set_watch({});
      return result;
    });
  }

 private:
  std::unique_ptr<Comm> comm_;
  double seconds_;
};

}  // namespace shardwright::python
