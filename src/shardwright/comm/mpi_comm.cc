#include "shardwright/comm/mpi_comm.h"

#include <mpi.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <list>
#include <set>
#include <thread>

#include "shardwright/comm/mailbox.h"

namespace shardwright {
namespace {

Status check(int code, const char* action) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return fail(Code::kInternal, std::string(action) + ": " + std::string(text.data(), static_cast<size_t>(length)));
}

/// A job that failed is not wound up: MPI_Finalize waits for everybody, without end. mpirun then ends the others.
std::atomic<bool> broken{false};

/// A copy of `world`, made without waiting beyond the deadline.
Result<MPI_Comm> twin_of(MPI_Comm world, Deadline deadline) {
  MPI_Comm twin = MPI_COMM_NULL;
  MPI_Request request;
  SHARDWRIGHT_TRY(check(MPI_Comm_idup(world, &twin, &request), "MPI cannot make a channel"));
  for (int done = 0; done == 0;) {
    SHARDWRIGHT_TRY(check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI cannot make a channel"));
    if (done == 0 && std::chrono::steady_clock::now() >= deadline)
      return fail(Code::kUnavailable, "not all ranks came in time").with_hint("see what the processes do");
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  MPI_Comm_set_errhandler(twin, MPI_ERRORS_RETURN);
  return twin;
}

class MpiMailbox : public Mailbox {
 public:
  explicit MpiMailbox(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }
  ~MpiMailbox() override {
    // What is under way to those who no longer take it is given up with the channel: freeing that is collective, and would wait.
    for (auto& letter : letters_) MPI_Request_free(&letter.request);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Result<std::unique_ptr<Mailbox>> clone(Deadline deadline) override {
    SHARDWRIGHT_ASSIGN(MPI_Comm twin, twin_of(comm_, deadline));
    return std::unique_ptr<Mailbox>(std::make_unique<MpiMailbox>(twin));
  }

  Status send(int to, Subject subject, View bytes) override {
    if (bytes.size() > INT_MAX)
      return fail(Code::kUnsupported, "too much for one message of MPI")
          .with_found(std::to_string(bytes.size()) + " bytes")
          .with_expected("fewer than 2^31");
    if (subject.kind == Subject::kFailure) broken = true;
    auto& letter = letters_.emplace_back(Letter{to, MPI_REQUEST_NULL});
    auto status = check(  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): unsent() waits for it
        MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, subject.kind, comm_, &letter.request),
        "MPI cannot send");
    if (!status.ok()) letters_.pop_back();
    return status;
  }

  Result<std::vector<int>> unsent() override {
    std::vector<int> ranks;
    for (auto at = letters_.begin(); at != letters_.end();) {
      int done = 0;
      SHARDWRIGHT_TRY(check(MPI_Test(&at->request, &done, MPI_STATUS_IGNORE), "MPI cannot send"));
      if (done == 0) ranks.push_back(at->to);
      at = done != 0 ? letters_.erase(at) : std::next(at);
    }
    return ranks;
  }

  // MPI keeps the order of what has one tag: the number is not needed.
  Result<std::optional<uint64_t>> arrived(int from, Subject subject) override {
    int there = 0, bytes = 0;
    MPI_Status status;
    SHARDWRIGHT_TRY(check(MPI_Iprobe(from, subject.kind, comm_, &there, &status), "MPI cannot look for messages"));
    if (there == 0) return std::optional<uint64_t>();
    SHARDWRIGHT_TRY(check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI cannot look for messages"));
    return std::optional(static_cast<uint64_t>(bytes));
  }

  Status receive(int from, Subject subject, MutableView into) override {
    if (subject.kind == Subject::kFailure) broken = true;
    return check(
        MPI_Recv(into.data(), static_cast<int>(into.size()), MPI_BYTE, from, subject.kind, comm_, MPI_STATUS_IGNORE),
        "MPI cannot receive");
  }
  std::chrono::microseconds patience() const override { return std::chrono::microseconds(200); }

 private:
  struct Letter {
    int to;
    MPI_Request request;
  };
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::list<Letter> letters_;
};

}  // namespace

Result<std::unique_ptr<Comm>> mpi_comm(Deadline deadline) {
  int ready = 0, threads = 0;
  MPI_Initialized(&ready);
  if (ready == 0) {
    SHARDWRIGHT_TRY(check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "MPI does not start"));
    std::atexit([] {
      int ended = 0;
      MPI_Finalized(&ended);
      if (ended == 0 && !broken) MPI_Finalize();
    });
  }
  MPI_Query_thread(&threads);
  if (threads < MPI_THREAD_SERIALIZED)  // workers take turns with it
    return fail(Code::kUnsupported, "MPI was started for one thread alone")
        .with_hint("start it by MPI_Init_thread() with MPI_THREAD_SERIALIZED or more, or leave it to be started here");
  SHARDWRIGHT_ASSIGN(MPI_Comm world, twin_of(MPI_COMM_WORLD, deadline));
  return comm_of(std::make_unique<MpiMailbox>(world));
}

}  // namespace shardwright
