/// Files below a directory, as the steps of a run need them.
#pragma once

#include <cstdint>
#include <string>

#include "shardwright/base/result.h"

namespace shardwright::detail {

struct TreeFacts {
  uint64_t bytes = 0, shared_bytes = 0;  ///< of files; of those with more than one name
  uint64_t files = 0;
  uint64_t newest_ns = 0;  ///< latest change of a file or directory, since 1970
};
/// What cannot be looked at is left out. Links are not followed.
TreeFacts look_at_tree(const std::string& directory);

/// Removes it and all below. Not an error: it is gone.
Status remove_tree(const std::string& directory);
/// Renames, durably.
Status move_directory(const std::string& from, const std::string& to);
/// Two directories change places in one step; false where the file system cannot.
Result<bool> exchange_directories(const std::string& a, const std::string& b);

}  // namespace shardwright::detail
