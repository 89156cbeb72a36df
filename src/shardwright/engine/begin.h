/// Beginning to write where somebody else may be writing.
#pragma once

#include <memory>

#include "shardwright/engine/jobs.h"

namespace shardwright {

struct Begun {
  std::unique_ptr<Transaction> transaction;
  bool waited = false;  ///< somebody else has written there meanwhile: what was found before may not hold any more
};
/// Store::begin(), which takes one writer of a directory at a time; waits some seconds for another one to finish.
/// Errors: as begin(), kUnavailable when the other one goes on; kAborted when options.progress (phase "wait") says so.
Result<Begun> begin_in_turn(Store& store, std::string_view under, const JobOptions& options);

}  // namespace shardwright
