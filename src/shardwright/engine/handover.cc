#include "shardwright/engine/handover.h"

namespace shardwright {

Status Handover::offer(View slab, const std::stop_token& stop) {
  if (slab.empty()) return {};
  std::unique_lock lock(mutex_);
  offered_ = slab;
  changed_.notify_all();
  if (changed_.wait(lock, stop, [&] { return !offered_; })) return {};
  offered_.reset();  // its memory goes
  return fail(Code::kAborted, "stopped on request");
}

void Handover::end(Status status) {
  std::lock_guard lock(mutex_);
  ended_ = std::move(status);
  changed_.notify_all();
}

Result<View> Handover::next() {
  std::unique_lock lock(mutex_);
  if (lent_) {
    offered_.reset();
    lent_ = false;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return offered_ || ended_; });
  if (offered_) {
    lent_ = true;
    return *offered_;
  }
  if (!ended_->ok()) return ended_->error();
  return View();
}

}  // namespace shardwright
