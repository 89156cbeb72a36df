/// Where a set of files is going to be.
#pragma once

#include <string>

#include "shardwright/base/result.h"

namespace shardwright::detail {

/// A directory that is there, or is going to be.
struct TargetDirectory {
  bool present = false;
  std::string path;  ///< absolute, links resolved as far as it exists
  std::string
      anchor;  ///< the directory in which a staging of a new one is made: absent, the nearest that exists; present, its parent
  std::string
      name;  ///< absent: the first missing component, which one rename brings; present: its own name. Empty for "/"
  std::string rest;  ///< absent: what is missing below `name` ("b/c"), often empty

  /// Errors: kNotFound for a dangling link; kAlreadyExists where a file is in the way.
  static Result<TargetDirectory> find(const std::string& path);
};

}  // namespace shardwright::detail
