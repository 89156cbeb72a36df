/// One tensor's values as they are wanted, instead of as they come: for whoever looks at two tensors side by side.
#pragma once

#include <thread>

#include "shardwright/engine/execute.h"
#include "shardwright/engine/handover.h"

namespace shardwright {

/// Slabs of a tensor in C order, in its own dtype, read by a thread of its own; encoded chunks are decoded once as far as the budget allows
/// (see Move::kStream). One thread may call next(). Holds at most options.memory_bytes, and never calls back.
class TensorStream {
 public:
  /// REQUIRES: checkpoint outlives this.
  TensorStream(const Checkpoint& checkpoint, TensorId tensor, const PlanOptions& options);
  TensorStream(const TensorStream&) = delete;
  TensorStream& operator=(const TensorStream&) = delete;
  ~TensorStream();
  /// The next slab, valid until the next call; empty once at the end. Errors: those of reading.
  Result<View> next() { return slabs_.next(); }

 private:
  Status read(const std::stop_token& stop);

  const Checkpoint& checkpoint_;
  const TensorId tensor_;
  const PlanOptions options_;
  Handover slabs_;
  std::jthread reader_;  ///< last: it uses all of the above
};

}  // namespace shardwright
