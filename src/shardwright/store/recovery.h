/// Finishing or dropping what a crash left in a directory.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "shardwright/base/result.h"
#include "shardwright/store/target_directory.h"

namespace shardwright::detail {

/// A journal in the directory: its replacement is finished, after waiting up to `patience` for one who is at it. Stagings whose owner is
/// dead, in the directory or beside it: removed. Returns a sentence when there was something.
/// Not an error: leftovers that may not be removed (they harm no reader).
/// Errors: kUnavailable when a replacement is under way or cannot be finished from here (read-only); kCorrupt for a damaged journal.
Result<std::optional<std::string>> recover_directory(const TargetDirectory& target, std::chrono::milliseconds patience);

}  // namespace shardwright::detail
