#include "shardwright/manager/manager.h"

#include <fmt/format.h>

#include <utility>

namespace shardwright {

CheckpointManager::CheckpointManager(std::string root, ManagerOptions options)
    : root_(std::move(root)), options_(std::move(options)), snapshot_(options_.staging_bytes) {}

Result<std::unique_ptr<CheckpointManager>> CheckpointManager::open(std::string root, ManagerOptions options) {
  SHARDWRIGHT_TRY(options.names.check());
  SHARDWRIGHT_TRY(options.retention.check());
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  if (root.empty()) return fail(Code::kInvalidArgument, "steps need a directory");
  SHARDWRIGHT_TRY(prune_steps(root, options.names, {.branches = false, .broken = false}));
  return std::unique_ptr<CheckpointManager>(new CheckpointManager(std::move(root), std::move(options)));
}

CheckpointManager::~CheckpointManager() {
  (void)thread_.request_stop();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (error_ && options_.lost) options_.lost(*error_);
}

Status CheckpointManager::take_error() {
  std::lock_guard lock(mutex_);
  if (!error_) return {};
  return *std::exchange(error_, std::nullopt);
}

bool CheckpointManager::idle() const {
  std::lock_guard lock(mutex_);
  return !busy_;
}

WrittenStep CheckpointManager::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

Status CheckpointManager::wait(std::optional<std::chrono::steady_clock::time_point> until) {
  std::unique_lock lock(mutex_);
  auto done = [&] { return !busy_; };
  if (!until) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_until(lock, *until, done)) {
    return fail(Code::kUnavailable, "the save in the background is not done yet").at_path(root_);
  }
  lock.unlock();
  return take_error();
}

Status CheckpointManager::close() {
  auto status = wait();
  snapshot_.release();
  return status;
}

Status CheckpointManager::save(Request request, const JobOptions& job) {
  if (options_.refuse_second && !idle())
    return fail(Code::kUnavailable, "a save is still running")
        .at_path(root_)
        .with_hint("wait for it, or save less often");
  SHARDWRIGHT_TRY(wait());
  StepConflict conflict{request.replace, options_.branch};
  SHARDWRIGHT_TRY(check_conflict(root_, options_.names, request.content.step, conflict));
  if (request.hold == Hold::kBlocking) return write(request, job);
  if (request.hold == Hold::kStaged) {
    SHARDWRIGHT_ASSIGN(request.content.tensors,
                       snapshot_.hold(request.content.tensors, request.content.calls, job.plan.threads));
  }
  request.content.calls = {};  // they are of this thread
  std::lock_guard lock(mutex_);
  pending_ = std::move(request);
  busy_ = true;
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  changed_.notify_all();
  return {};
}

/// One step, and what the rules say of the others then.
Status CheckpointManager::write(const Request& request, const JobOptions& job) {
  StepConflict conflict{request.replace, options_.branch};
  JobOptions options = job;
  options.progress = [&](std::string_view phase, uint64_t done, uint64_t total) {
    if (request.until && std::chrono::steady_clock::now() > *request.until) return false;
    return !job.progress || job.progress(phase, done, total);
  };
  auto written = write_step(root_, options_.names, request.content, conflict, options);
  if (!written.ok())
    return std::move(written.error())
        .within(fmt::format("while step {} was saved in '{}'", request.content.step, root_));
  {
    std::lock_guard lock(mutex_);
    last_ = std::move(*written);
  }
  if (options_.retention.keeps_all()) return {};
  Retention rules = options_.retention;
  rules.steps.insert(rules.steps.end(), request.keep.begin(), request.keep.end());
  auto forgotten = forget_steps(root_, options_.names, rules, /*dry_run=*/false);
  if (!forgotten.ok())
    return std::move(forgotten.error())
        .within(fmt::format("while old steps were removed; step {} is saved", request.content.step));
  return {};
}

void CheckpointManager::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  // What was handed over is written, also when the end is asked for meanwhile.
  while (changed_.wait(lock, stop, [&] { return pending_.has_value(); }) || pending_) {
    Request request = std::move(*std::exchange(pending_, std::nullopt));
    lock.unlock();
    JobOptions job = options_.job;
    job.progress = nullptr;
    Status status = write(request, job);
    request = {};  // lets go of what it held before anybody is told
    lock.lock();
    if (!status.ok()) error_ = std::move(status.error());
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace shardwright
