/// Files below a directory, as the steps of a run need them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "shardwright/base/result.h"

namespace shardwright::detail {

struct TreeFacts {
  uint64_t bytes = 0, shared_bytes = 0;  ///< of files; of those with more than one name
  uint64_t files = 0;
  uint64_t newest_ns = 0;          ///< latest change of a file or directory, since 1970
  std::optional<Error> trouble{};  ///< why something in it could not be looked at, and was left out
  bool changed_within(std::chrono::seconds age) const;
};
/// Whether this errno says that there is no such file. Any other one says that nobody can tell.
bool means_missing(int number);
/// Links are not followed. Not an error: what goes meanwhile, or was never there.
TreeFacts look_at_tree(const std::string& directory);

/// Removes it and all below. Not an error: it is gone.
Status remove_tree(const std::string& directory);
/// Renames, durably.
Status move_directory(const std::string& from, const std::string& to);
/// The same within one directory, to a name that is free: nothing but an empty directory is ever replaced. Errors: kAlreadyExists.
Status move_to_free_name(const std::string& from, const std::string& to);
/// Two directories change places in one step; false where the file system cannot.
Result<bool> exchange_directories(const std::string& a, const std::string& b);

}  // namespace shardwright::detail
