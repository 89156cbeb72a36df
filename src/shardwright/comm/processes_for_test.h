/// For tests only: ranks as processes of their own.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace shardwright::testing_support {

/// Forked children, each running `run(rank)`, whose text comes back. Ended when this goes.
class Processes {
 public:
  Processes(int count, const std::function<std::string(int rank)>& run) {
    for (int rank = 0; rank < count; ++rank) {
      std::array<int, 2> ends{};
      if (::pipe(ends.data()) != 0) continue;
      pid_t pid = ::fork();
      if (pid == 0) {
        std::string text = run(rank);
        (void)!::write(ends[1], text.data(), text.size());
        ::_exit(0);
      }
      ::close(ends[1]);
      children_.push_back({pid, ends[0]});
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (auto [pid, end] : children_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      ::close(end);
    }
  }
  void signal(int rank, int number) const { ::kill(children_[static_cast<size_t>(rank)].pid, number); }
  /// What the rank says at its end.
  std::string text(int rank) const {
    std::string out;
    std::array<char, 4096> part{};
    for (ssize_t got; (got = ::read(children_[static_cast<size_t>(rank)].end, part.data(), part.size())) > 0;)
      out.append(part.data(), static_cast<size_t>(got));
    return out;
  }

 private:
  struct Child {
    pid_t pid;
    int end;
  };
  std::vector<Child> children_;
};

}  // namespace shardwright::testing_support
