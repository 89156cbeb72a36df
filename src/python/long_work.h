/// Work that may take long, asked for by Python: without the GIL, stopped by Ctrl-C, telling how far it is.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <utility>

#include "python/errors.h"
#include "shardwright/engine/jobs.h"

namespace shardwright::python {

/// Used on one thread, the one that called from Python: the engine calls back on it only, so the GIL is taken nowhere else.
class LongWork {
 public:
  /// progress: None, or called as progress(phase, done, total) about 10 times a second; False stops the work (AbortedError), what it
  /// raises stops the work and is raised by run(). memory_bytes, threads: see PlanOptions.
  LongWork(nanobind::object progress, uint64_t memory_bytes, int threads);
  LongWork(const LongWork&) = delete;
  ~LongWork();

  /// job(options) without the GIL. Throws what a callback or a signal handler (KeyboardInterrupt) raised, else Raised for its error.
  template <class Job>
  auto run(const Job& job) {
    auto result = [&] {
      nanobind::gil_scoped_release released;
      return job(options_);
    }();
    rethrow();
    return unwrap(std::move(result));
  }

  /// Takes the GIL for a callback; what it throws of Python is kept for run(), and the job ends with kAborted.
  Status call(const std::function<void()>& callback);
  /// For who waits: an error once a signal (Ctrl-C) wants to be heard.
  Status watch();

 private:
  bool keep_going(std::string_view phase, uint64_t done, uint64_t total);
  void rethrow();

  JobOptions options_;
  nanobind::object progress_;
  std::optional<nanobind::python_error> raised_;
};

}  // namespace shardwright::python
