/// The checkpoints of a training run: saved in the background, kept by rules, found again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shardwright/manager/snapshot.h"
#include "shardwright/manager/write_step.h"

namespace shardwright {

struct ManagerOptions {
  StepNames names{};
  Retention retention{};
  uint64_t staging_bytes = 64 * GiB;  ///< most that copies of what is being saved may take; taken as needed, and kept
  bool refuse_second = false;         ///< a save while another one runs: kUnavailable, instead of waiting for it
  bool branch = false;                ///< see StepConflict
  JobOptions job{};                   ///< for writing in the background: progress is not looked at
  /// Told of a failure that nobody has asked for when the manager ends. Libraries do not print.
  std::function<void(const Error&)> lost{};
};

/// How a save holds values still.
enum class Hold : uint8_t {
  kStaged,     ///< copied before save() returns
  kReference,  ///< as they lie: all in memory, they do not change, and stay, until idle()
  kBlocking,   ///< save() returns when the step is there
};

/// Steps below one root, which has one writer. Every function but idle() belongs to one thread, the owner's. A failure in the background is
/// returned once, by the next call of save(), wait() or close(): what failed is no step.
class CheckpointManager {
 public:
  /// Finishes replacements that a crash has stopped, and removes what dead processes of this library left. The root need not be there.
  static Result<std::unique_ptr<CheckpointManager>> open(std::string root, ManagerOptions options);
  ~CheckpointManager();  ///< waits; see ManagerOptions::lost
  CheckpointManager(const CheckpointManager&) = delete;

  struct Request {
    StepContent content;
    Hold hold = Hold::kStaged;
    bool replace = false;                                          ///< see StepConflict
    std::vector<uint64_t> keep{};                                  ///< steps that stay, whatever the rules
    std::optional<std::chrono::steady_clock::time_point> until{};  ///< kAborted when it is not done by then
  };
  /// A save before it is waited for first. job: for what runs on this thread. Errors: kAlreadyExists and all that is refused at once; that of
  /// the save before, and then this one is not begun.
  Status save(Request request, const JobOptions& job);
  /// True when nothing is being written, or by the deadline; the failure of the last save, once. kUnavailable: not done by the deadline.
  Status wait(std::optional<std::chrono::steady_clock::time_point> until = {});
  bool idle() const;
  /// wait(), and gives the staging memory back.
  Status close();

  Result<std::vector<Step>> steps() const { return list_steps(root_, options_.names); }
  Result<std::optional<Step>> latest() const { return latest_step(root_, options_.names); }
  const std::string& root() const { return root_; }
  const StepNames& names() const { return options_.names; }
  uint64_t staging_bytes() const { return snapshot_.memory_bytes(); }
  /// What the last save that succeeded wrote; its step is 0 and its name empty before the first.
  WrittenStep last() const;

 private:
  CheckpointManager(std::string root, ManagerOptions options);
  Status write(const Request& request, const JobOptions& job);
  void work(const std::stop_token& stop);
  Status take_error();

  const std::string root_;
  const ManagerOptions options_;
  Snapshot snapshot_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  // Below: guarded by mutex_.
  std::optional<Request> pending_;
  bool busy_ = false;
  std::optional<Error> error_;
  WrittenStep last_;
  std::jthread thread_;  ///< begun by the first save in the background
};

}  // namespace shardwright
