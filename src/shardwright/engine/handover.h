/// From a thread that makes slabs to the one that uses them, one slab at a time.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

class Handover {
 public:
  /// By the maker: returns once the slab was used. kAborted when `stop` was requested. An empty slab is none.
  Status offer(View slab, const std::stop_token& stop);
  /// By the maker, once, after the last slab.
  void end(Status status);
  /// By the user: the next slab, valid until the next call; empty once at the end. Errors: the maker's.
  Result<View> next();

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<View> offered_;  ///< by the maker; taken away when the user is done with it
  bool lent_ = false;            ///< the user has it
  std::optional<Status> ended_;
};

}  // namespace shardwright
