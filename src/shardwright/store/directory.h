/// Directories: made, synced, listed, removed. Paths are absolute unless said otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"

namespace shardwright::detail {

/// Part before the last '/', "/" for top-level names; and the part after it.
std::string parent_of(const std::string& path);
std::string name_of(const std::string& path);

/// Makes a directory and those it lies in. Every one that was missing is durable when this returns.
Status make_directories(const std::string& path);
/// Makes the names in a directory durable.
Status sync_directory(const std::string& path);
/// The same for a directory and all below it, deepest first. Links are not followed.
Status sync_directories_below(const std::string& path);
/// Names in a directory, without "." and "..", in no order. Not an error: an absent directory has none.
Result<std::vector<std::string>> names_in(const std::string& path);
/// Removes a file. Not an error: it is absent already, or a directory (which stays).
Status remove_file(const std::string& path);

/// Where writing to `path` really ends: its own links followed, also when the last one points to nothing yet.
Result<std::string> resolve_links(const std::string& path);
/// True when both directories are on one mount, so that a rename between them can work.
bool same_mount(const std::string& directory_a, const std::string& directory_b);

}  // namespace shardwright::detail
