#include "shardwright/engine/tensor_stream.h"

namespace shardwright {

TensorStream::TensorStream(const Checkpoint& checkpoint, TensorId tensor, const PlanOptions& options)
    : checkpoint_(checkpoint), tensor_(tensor), options_(options), reader_([this](const std::stop_token& stop) {
        auto status = read(stop);
        std::lock_guard lock(mutex_);
        ended_ = std::move(status);
        changed_.notify_all();
      }) {}

TensorStream::~TensorStream() {
  reader_.request_stop();
  reader_.join();
}

Result<View> TensorStream::next() {
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

Status TensorStream::read(const std::stop_token& stop) {
  auto spec = checkpoint_.catalog.spec(tensor_);
  CatalogBuilder builder;
  SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
  SHARDWRIGHT_ASSIGN(auto target, builder.build(/*partial=*/true));
  SHARDWRIGHT_ASSIGN(auto plan, plan_load(checkpoint_.catalog, target, {&tensor_, 1}, options_));
  Calls calls;
  calls.consume = [&](TensorId, const Box&, View values) { return hand_over(values, stop); };
  calls.keep_going = [&](uint64_t, uint64_t) { return !stop.stop_requested(); };
  SHARDWRIGHT_TRY(execute(plan, {checkpoint_.store.get(), nullptr, nullptr}, calls));
  return {};
}

Status TensorStream::hand_over(View slab, const std::stop_token& stop) {
  if (slab.empty()) return {};
  std::unique_lock lock(mutex_);
  offered_ = slab;
  changed_.notify_all();
  if (changed_.wait(lock, stop, [&] { return !offered_; })) return {};
  return fail(Code::kAborted, "stopped on request");
}

}  // namespace shardwright
