/// Putting staged files in the place of others, so that it can be done again from any point where it was stopped.
#pragma once

#include <string>
#include <vector>

#include "shardwright/base/result.h"

namespace shardwright::detail {

/// What a commit into an existing directory does, in this order. All names are relative to the directory.
struct Replacement {
  std::string staging;  ///< name of the staging directory
  std::vector<std::string>
      remove_before;  ///< entry points of the old set: its readers fail from here on instead of seeing a mix
  struct Object {
    std::string key;
    uint64_t size;
  };
  std::vector<Object> objects;            ///< renamed in this order, the entry point last
  std::vector<std::string> remove_after;  ///< what the old set leaves behind, its entry points first
};

/// Puts `key` where its bytes will be looked for: kAlreadyExists when a directory, or a file in the place of a directory, is in the way.
/// Returns the path, links of the last component followed: a link stays, what it points to is replaced.
Result<std::string> final_path(const std::string& directory, const std::string& key);

/// Does it, or the rest of it. Idempotent: a staged file that is gone has been renamed, then its final one must be there.
/// Every step is durable before the next kind of step begins, and all of it when this returns.
/// Errors: kCorrupt when neither is there; kIo and others of the system: the rest can be done later.
Status replace(const std::string& directory, const Replacement& replacement);

}  // namespace shardwright::detail
