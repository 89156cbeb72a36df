#include "shardwright/manager/manager.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "shardwright/store/directory.h"

namespace shardwright {
namespace {

/// For one who only clears up.
constexpr std::chrono::milliseconds kPatience{1000};

/// By names alone: somebody who only reads looks no further.
Result<bool> may_have_leftovers(const std::string& root) {
  SHARDWRIGHT_ASSIGN(auto names, detail::names_in(root));
  return std::ranges::any_of(names, [](const std::string& name) {
    bool kept = name == kBranches || name == kPins || name == kWriter;
    return (name.starts_with('.') && !kept) || name.find(kTemporarySuffix) != name.npos;
  });
}

/// Where everything is freed again that the job has taken, a thing that is too large is no end of the process.
template <class Job>
Status with_memory(const Job& job) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    return fail(Code::kResourceExhausted, "there is not enough memory to save");
  }
}

bool is_late(const CheckpointManager::Request& request) {
  return request.until && std::chrono::steady_clock::now() > *request.until;
}

Error late(const CheckpointManager::Request& request) {
  return fail(Code::kAborted, fmt::format("step {} was not saved by its deadline", request.content.step));
}

/// Of this thread, and of those that it begins: the training goes first, by ten to one. Not the last of all: where a machine always has something else to
/// do a save would never end.
void step_back() { (void)!::nice(10); }  // on Linux a thread's, not the process's

/// Neither is lost.
Status both(const Status& before, Status now) {
  if (now.ok()) return before;
  if (!before.ok()) now.error().context.push_back("and the save before this one failed: " + before.error().text());
  return now;
}

}  // namespace

CheckpointManager::CheckpointManager(std::string root, ManagerOptions options, std::unique_ptr<Comm> comm)
    : root_(std::move(root)),
      options_(std::move(options)),
      comm_(comm ? std::move(comm) : single_process()),
      snapshot_(options_.staging_bytes),
      process_(::getpid()) {}

bool CheckpointManager::forked() const { return ::getpid() != process_; }

Result<std::unique_ptr<CheckpointManager>> CheckpointManager::open(std::string root, ManagerOptions options,
                                                                   std::unique_ptr<Comm> comm) {
  SHARDWRIGHT_TRY(options.names.check());
  SHARDWRIGHT_TRY(options.retention.check());
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  if (root.empty()) return fail(Code::kInvalidArgument, "steps need a directory");
  std::unique_ptr<CheckpointManager> manager(
      new CheckpointManager(std::move(root), std::move(options), std::move(comm)));
  Status status = manager->leads() ? manager->prepare_root() : Status();
  SHARDWRIGHT_TRY(agree(*manager->comm_, status, deadline_in(manager->options_.job.wait)));
  return manager;
}

/// By several ranks the root is made now, so that none has looked for it in vain before and is told so again, as network file systems do.
Status CheckpointManager::prepare_root() {
  if (comm_->size() > 1) {
    if (options_.refuse_second)
      return fail(Code::kInvalidArgument, "of several ranks none refuses a save by itself")
          .with_hint("a second save waits for the first one");
    SHARDWRIGHT_TRY(detail::make_directories(root_));
  }
  SHARDWRIGHT_ASSIGN(bool any, may_have_leftovers(root_));
  if (!any) return {};
  auto claim = Claim::take(root_, {});
  if (!claim.ok()) return {};  // who writes here clears up, or nobody can
  auto pruned =
      prune_steps(root_, options_.names, {.branches = false, .broken = false, .claimed = true, .lenient = true});
  return pruned.ok() ? Status() : Status(pruned.error());
}

CheckpointManager::~CheckpointManager() {
  if (forked()) {  // these are the parent's: a copy of a lock that may be held, of a thread that is not here
    (void)background_.release();
    (void)comm_.release();
    return;
  }
  Background& all = *background_;
  {
    std::lock_guard lock(all.mutex);
    all.ending = true;
  }
  (void)all.thread.request_stop();
  all.changed.notify_all();
  if (all.thread.joinable()) all.thread.join();
  if (all.error && options_.lost) options_.lost(*all.error);
}

Status CheckpointManager::take_error() {
  std::lock_guard lock(background_->mutex);
  if (!background_->error) return {};
  return *std::exchange(background_->error, std::nullopt);
}

bool CheckpointManager::idle() const {
  if (forked()) return true;
  std::lock_guard lock(background_->mutex);
  return !background_->busy;
}

WrittenStep CheckpointManager::last() const {
  if (forked()) return {};
  std::lock_guard lock(background_->mutex);
  return background_->last;
}

Status CheckpointManager::wait(std::optional<std::chrono::steady_clock::time_point> until) {
  if (forked()) return {};
  Background& all = *background_;
  std::unique_lock lock(all.mutex);
  auto done = [&] { return !all.busy || all.overdue; };
  if (!until) {
    all.changed.wait(lock, done);
  } else if (!all.changed.wait_until(lock, *until, done)) {
    return fail(Code::kUnavailable, "the save in the background is not done yet").at_path(root_);
  }
  lock.unlock();
  return take_error();
}

/// Also for what the owner was told of already.
Status CheckpointManager::wait_until_idle() {
  if (forked()) return {};
  std::unique_lock lock(background_->mutex);
  background_->changed.wait(lock, [&] { return !background_->busy; });
  lock.unlock();
  return take_error();
}

Status CheckpointManager::close() {
  auto status = wait();
  auto set_ending = [&](bool ending) {
    if (forked()) return;
    std::lock_guard lock(background_->mutex);
    background_->ending = ending;
  };
  set_ending(true);
  (void)wait_until_idle();  // told already
  set_ending(false);
  snapshot_.release();
  claim_.reset();
  return status;
}

Result<Checkpoint> CheckpointManager::restore(std::optional<uint64_t> number, const std::string& item) const {
  SHARDWRIGHT_ASSIGN(auto found, complete_step(root_, options_.names, number));
  SHARDWRIGHT_ASSIGN(auto state, tensors_of_step(root_ + "/" + found.name, item));
  return open_checkpoint(state);
}

Result<std::vector<Leftover>> CheckpointManager::prune(PruneOptions options) {
  options.claimed = claim_ != nullptr && !forked();
  return prune_steps(root_, options_.names, options);
}

Status CheckpointManager::check_root(const Request& request) {
  if (!claim_) {
    SHARDWRIGHT_TRY(detail::make_directories(root_));
    SHARDWRIGHT_ASSIGN(claim_, Claim::take(root_, kPatience));
  }
  StepConflict conflict{request.replace, options_.branch};
  return check_conflict(root_, options_.names, request.content.step, conflict);
}

/// What is refused at once is refused here; then the values are held still.
Status CheckpointManager::hold(Request& request, const JobOptions& job) {
  if (leads()) SHARDWRIGHT_TRY(check_root(request));
  if (request.hold == Hold::kReference || request.hold == Hold::kBlocking) return {};
  auto held = snapshot_.hold(request.content.tensors, request.content.calls, job.plan.threads);
  if (held.ok()) {
    request.content.tensors = std::move(*held);
    return {};
  }
  if (request.hold == Hold::kStaged || held.error().code != Code::kResourceExhausted) return held.error();
  request.hold = Hold::kBlocking;
  return {};
}

Status CheckpointManager::save(Request request, const JobOptions& job) {
  if (forked())
    return fail(Code::kInvalidArgument, "a manager saves in the process that opened it, not in one forked from that")
        .at_path(root_)
        .with_hint("open another one after the fork, with a directory of its own");
  return with_memory([&] { return save_here(std::move(request), job); });
}

Status CheckpointManager::save_here(Request request, const JobOptions& job) {
  if (options_.refuse_second && !idle())
    return fail(Code::kUnavailable, "a save is still running")
        .at_path(root_)
        .with_hint("wait for it, or save less often");
  Status before = wait_until_idle();
  if (!before.ok() && comm_->size() == 1) return before;
  Status held = hold(request, job);
  if (held.ok() && request.hold == Hold::kBlocking)
    return both(before, write({std::move(request)}, job, /*blocking=*/true));
  if (!held.ok()) {
    refuse(held.error());
    return both(before, held);
  }
  request.content.calls = {};  // they are of this thread
  return both(before, hand_over({std::move(request)}));
}

void CheckpointManager::refuse(const Error& why) {
  if (comm_->size() == 1 || forked()) return;
  (void)wait_until_idle();  // whatever has become of it: this is about the next one
  (void)hand_over({{}, why});
}

Status CheckpointManager::hand_over(Work next) {
  Background& all = *background_;
  std::lock_guard lock(all.mutex);
  try {
    if (!all.thread.joinable()) all.thread = std::jthread([this](const std::stop_token& stop) { work(stop); });
  } catch (const std::system_error& error) {
    return fail(Code::kResourceExhausted, "there can be no thread to save in the background").with_found(error.what());
  }
  all.pending = std::move(next);
  all.busy = true;
  all.changed.notify_all();
  return {};
}

/// Of whoever waits for other ranks.
Status CheckpointManager::watch(const Request& request, bool blocking) {
  if (!is_late(request)) return {};
  if (blocking) return late(request);
  Background& all = *background_;
  std::lock_guard lock(all.mutex);
  if (all.ending) return late(request);
  if (std::exchange(all.overdue, true)) return {};
  all.error = late(request);
  all.changed.notify_all();
  return {};
}

/// One step, and what the rules say of the others then.
Status CheckpointManager::write(const Work& work, const JobOptions& job, bool blocking) {
  const Request& request = work.request;
  StepConflict conflict{request.replace, options_.branch};
  JobOptions options = job;
  options.wait = options_.job.wait;
  options.progress = [&](std::string_view phase, uint64_t done, uint64_t total) {
    return !is_late(request) && (!job.progress || job.progress(phase, done, total));
  };
  struct Unwatch {
    Comm& comm;
    ~Unwatch() { comm.set_watch({}); }
  } unwatch{*comm_};
  comm_->set_watch([&]() -> Status {
    if (job.progress && !job.progress("wait", 0, 0)) return fail(Code::kAborted, "stopped on request");
    return watch(request, blocking);
  });
  auto own = [&]() -> Status {
    if (!work.own.ok()) return work.own;
    return is_late(request) ? Status(late(request)) : Status();
  };
  auto written = write_step(root_, options_.names, request.content, conflict, options, *comm_, own);
  if (!work.own.ok()) return {};  // told already
  if (!written.ok()) {
    if (written.error().code == Code::kAborted && is_late(request)) written.error().message = late(request).message;
    return std::move(written.error())
        .within(fmt::format("while step {} was saved in '{}'", request.content.step, root_));
  }
  {
    std::lock_guard lock(background_->mutex);
    background_->last = std::move(*written);
  }
  return leads() ? apply_rules(request) : Status();
}

Status CheckpointManager::apply_rules(const Request& request) {
  if (options_.retention.keeps_all()) return {};
  Retention rules = options_.retention;
  rules.steps.insert(rules.steps.end(), request.keep.begin(), request.keep.end());
  auto forgotten = forget_steps(root_, options_.names, rules, {.lean = true});
  if (!forgotten.ok())
    return std::move(forgotten.error())
        .within(fmt::format("while old steps were removed; step {} is saved", request.content.step));
  std::lock_guard lock(background_->mutex);
  for (const auto& [step, failure] : forgotten->failures) background_->last.warnings.push_back(failure.text());
  return {};
}

void CheckpointManager::work(const std::stop_token& stop) {
  step_back();
  Background& all = *background_;
  std::unique_lock lock(all.mutex);
  // What was handed over is written, also when the end is asked for meanwhile.
  while (all.changed.wait(lock, stop, [&] { return all.pending.has_value(); }) || all.pending) {
    Work next = std::move(*std::exchange(all.pending, std::nullopt));
    lock.unlock();
    JobOptions job = options_.job;
    job.progress = nullptr;
    Status status = with_memory([&] { return write(next, job, /*blocking=*/false); });
    next = {};  // lets go of what it held before anybody is told
    lock.lock();
    if (!status.ok() && !all.overdue) all.error = std::move(status.error());
    all.busy = all.overdue = false;
    all.changed.notify_all();
  }
}

}  // namespace shardwright
