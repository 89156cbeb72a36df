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

#include "shardwright/manager/claim.h"
#include "shardwright/manager/snapshot.h"
#include "shardwright/manager/write_step.h"

namespace shardwright {

struct ManagerOptions {
  StepNames names{};
  Retention retention{};
  uint64_t staging_bytes = 64 * GiB;  ///< most that copies of what is being saved may take; taken as needed, and kept
  bool refuse_second = false;         ///< a save while another one runs: kUnavailable, instead of waiting for it
  bool branch = false;                ///< see StepConflict
  /// For writing in the background: progress is not looked at. job.wait: longest that a rank waits for the others, here and elsewhere.
  JobOptions job{};
  /// Told of a failure that nobody has asked for when the manager ends. Libraries do not print.
  std::function<void(const Error&)> lost{};
};

/// How a save holds values still.
enum class Hold : uint8_t {
  kStaged,            ///< copied before save() returns
  kStagedOrBlocking,  ///< so, or when there is no memory for a copy, as kBlocking
  kReference,         ///< as they lie: all in memory, they do not change, and stay, until idle()
  kBlocking,          ///< save() returns when the step is there
};

/// Steps below one root, which has one writer: from its first save until close() a manager holds ROOT/.writer (see claim.h), and another one's save
/// is kUnavailable, naming it; to read anybody may open one. Every function but idle() belongs to one thread, the owner's. A failure in the background is
/// returned once, by the next call of save(), wait() or close(): what failed is no step.
///
/// What is written in the background takes the processors that others leave, or a tenth (nice 10); what save() itself writes, like anything else.
///
/// A process that is forked has no thread that saves: there save() is an error, wait() and close() do nothing, and the end waits for nothing. To read it
/// may be used.
///
/// By several ranks: open() and save() are collective: all ranks call them in the same order, save() with the same step, and write_step() with a
/// Comm says what each brings. Both waits, for the save before and for the other ranks, are made by the thread in the background (but for
/// Hold::kBlocking); nothing else is collective. What one rank refuses is the error of its save(), and of the next call on all others: the step is
/// not there, and the ranks go on. So they do after a failure: save() returns that of the save before, and has begun its own all the same, as others
/// may have. Where a rank is lost, or does not answer in time, they do not: every later save fails like the first. Rules are applied by rank 0 alone,
/// which also says what fails then.
class CheckpointManager {
 public:
  /// Finishes replacements that a crash has stopped, and removes what dead processes of this library left. The root need not be there.
  /// comm: a channel that is the manager's alone; null: this process by itself. Of several ranks rank 0 does the above, and makes the root.
  static Result<std::unique_ptr<CheckpointManager>> open(std::string root, ManagerOptions options,
                                                         std::unique_ptr<Comm> comm = nullptr);
  ~CheckpointManager();  ///< waits; see ManagerOptions::lost
  CheckpointManager(const CheckpointManager&) = delete;

  struct Request {
    StepContent content;
    Hold hold = Hold::kStaged;
    bool replace = false;          ///< see StepConflict
    std::vector<uint64_t> keep{};  ///< steps that stay, whatever the rules
    /// kAborted when it is not done by then. Where it waits for other ranks then, wait() says so at once, while the thread in the background goes on
    /// waiting, to tell them: they fail with the same, and all may save again. (Hold::kBlocking has no such thread: there the ranks are parted.)
    std::optional<std::chrono::steady_clock::time_point> until{};
  };
  /// A save before it is waited for first. job: for what runs on this thread. Errors: kAlreadyExists and all that is refused at once; that of
  /// the save before, and then this one is not begun (but by several ranks).
  Status save(Request request, const JobOptions& job);
  /// In place of a save() that this rank cannot even ask for: the others' fails with `why`. Nothing where there are no others.
  void refuse(const Error& why);
  /// True when nothing is being written, or by the deadline; the failure of the last save, once. kUnavailable: not done by the deadline.
  Status wait(std::optional<std::chrono::steady_clock::time_point> until = {});
  bool idle() const;
  /// wait(), and gives the staging memory and the right to write back.
  Status close();

  Result<std::vector<Step>> steps() const { return list_steps(root_, options_.names); }
  Result<std::optional<Step>> latest() const { return latest_step(root_, options_.names); }
  Result<std::optional<Step>> best(const std::string& metric, bool max) const {
    return best_step(root_, options_.names, metric, max);
  }
  /// The tensors of a complete step, the newest where none is named; read by load_tensors() and all others. Errors: kNotFound, kCorrupt.
  Result<Checkpoint> restore(std::optional<uint64_t> number = {}, const std::string& item = "state") const;
  Result<std::optional<Step>> step(uint64_t number) const { return read_step(root_, options_.names, number); }
  /// prune_steps(), by the one that may have the claim.
  Result<std::vector<Leftover>> prune(PruneOptions options);
  const std::string& root() const { return root_; }
  const StepNames& names() const { return options_.names; }
  int ranks() const { return comm_->size(); }
  uint64_t staging_bytes() const { return snapshot_.memory_bytes(); }
  /// What the last save that succeeded wrote; its step is 0 and its name empty before the first. Its warnings name old steps that no rule keeps and that
  /// could not be removed: the next save tries again, or prune() removes what is left of them.
  WrittenStep last() const;

 private:
  /// What one save is to do. own: what has gone wrong on this rank already, of which it has returned.
  struct Work {
    Request request;
    Status own{};
  };
  CheckpointManager(std::string root, ManagerOptions options, std::unique_ptr<Comm> comm);
  Status prepare_root();
  Status check_root(const Request& request);
  bool forked() const;
  Status save_here(Request request, const JobOptions& job);
  bool leads() const { return comm_->rank() == 0; }
  Status hold(Request& request, const JobOptions& job);
  Status hand_over(Work next);
  Status wait_until_idle();
  Status watch(const Request& request, bool blocking);
  Status write(const Work& work, const JobOptions& job, bool blocking);
  Status apply_rules(const Request& request);
  void work(const std::stop_token& stop);
  Status take_error();

  const std::string root_;
  const ManagerOptions options_;
  /// What the thread and the owner share. A fork cannot even take it apart.
  struct Background {
    std::mutex mutex;
    std::condition_variable_any changed;
    // Below: guarded by mutex.
    std::optional<Work> pending;
    bool busy = false;
    bool overdue = false;  ///< the owner was told that what is being saved has no time left
    bool ending = false;   ///< then what has no time left waits for nobody
    std::optional<Error> error;
    WrittenStep last;
    std::jthread thread;  ///< begun by the first save in the background
  };
  std::unique_ptr<Comm> comm_;  ///< of whoever writes: the thread, or save() while that does nothing
  std::unique_ptr<Claim> claim_;
  Snapshot snapshot_;
  std::unique_ptr<Background> background_ = std::make_unique<Background>();
  const int process_;
};

}  // namespace shardwright
