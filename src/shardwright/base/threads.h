/// Work shared out among threads of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace shardwright {

/// Calls job(i) for each i below `count`, on up to `most` threads (0: as many as there are processors, at most 4), one of which is the caller's; as few
/// as the system gives. job throws nothing.
template <class Job>
void on_threads(size_t count, int most, const Job& job) {
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < count;) job(i);
  };
  unsigned usual = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  size_t threads = std::min<size_t>(most > 0 ? static_cast<unsigned>(most) : usual, count);
  std::vector<std::jthread> helpers;
  try {
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  } catch (const std::exception&) {  // no room for one more stack: fewer do it
  }
  work();
}

}  // namespace shardwright
