/// One tensor's values as they are wanted, instead of as they come: for whoever looks at two tensors side by side.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "shardwright/engine/execute.h"

namespace shardwright {

/// Slabs of a tensor in C order, in its own dtype, read by a thread of its own; every encoded chunk whose rows are whole is decoded once.
/// One thread may call next(). Holds at most options.memory_bytes, and never calls back.
class TensorStream {
 public:
  /// REQUIRES: checkpoint outlives this.
  TensorStream(const Checkpoint& checkpoint, TensorId tensor, const PlanOptions& options);
  TensorStream(const TensorStream&) = delete;
  TensorStream& operator=(const TensorStream&) = delete;
  ~TensorStream();
  /// The next slab, valid until the next call; empty once at the end. Errors: those of reading.
  Result<View> next();

 private:
  Status read(const std::stop_token& stop);
  Status hand_over(View slab, const std::stop_token& stop);

  const Checkpoint& checkpoint_;
  const TensorId tensor_;
  const PlanOptions options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<View> offered_;  ///< by the reader; taken away when the caller is done with it
  bool lent_ = false;            ///< the caller has it
  std::optional<Status> ended_;
  std::jthread reader_;  ///< last: it uses all of the above
};

}  // namespace shardwright
