#include "shardwright/engine/tensor_stream.h"

namespace shardwright {

TensorStream::TensorStream(const Checkpoint& checkpoint, TensorId tensor, const PlanOptions& options)
    : checkpoint_(checkpoint),
      tensor_(tensor),
      options_(options),
      reader_([this](const std::stop_token& stop) { slabs_.end(read(stop)); }) {}

TensorStream::~TensorStream() {
  reader_.request_stop();
  reader_.join();
}

Status TensorStream::read(const std::stop_token& stop) {
  auto spec = checkpoint_.catalog.spec(tensor_);
  CatalogBuilder builder;
  SHARDWRIGHT_TRY(builder.add_tensor(spec.name, spec.dtype, spec.shape));
  SHARDWRIGHT_ASSIGN(auto target, builder.build(/*partial=*/true));
  SHARDWRIGHT_ASSIGN(auto plan, plan_load(checkpoint_.catalog, target, {&tensor_, 1}, options_));
  Calls calls;
  calls.consume = [&](TensorId, const Box&, View values) { return slabs_.offer(values, stop); };
  calls.keep_going = [&](uint64_t, uint64_t) { return !stop.stop_requested(); };
  SHARDWRIGHT_TRY(execute(plan, {checkpoint_.store.get(), nullptr, nullptr}, calls));
  return {};
}

}  // namespace shardwright
