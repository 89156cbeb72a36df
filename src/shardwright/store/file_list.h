/// Names of files below a directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"

namespace shardwright::detail {

/// Paths (prefix + name) of regular files and links to them below `prefix` of the directory `root_fd`, sorted; empty when there is no such
/// directory. Links to directories are not followed, reserved names are skipped, and so are subdirectories that may not be read.
Result<std::vector<std::string>> list_files(int root_fd, std::string_view prefix, const std::string& shown_path);

}  // namespace shardwright::detail
