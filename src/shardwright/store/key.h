/// What names keys may have, and which names in a directory are ours and no keys.
#pragma once

#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright::detail {

/// Names that transactions leave in a directory while they run: ".shardwright-<id>" and ".NAME.shardwright-<id>". Readers skip them.
inline bool is_reserved_name(std::string_view name) {
  return !name.empty() && name.front() == '.' && name.find(".shardwright-") != std::string_view::npos;
}

/// ok, or kInvalidArgument: a key is a safe relative path without reserved components.
Status check_key(std::string_view key);
/// The same for a directory below the root: "" is the root itself.
Status check_directory(std::string_view under);
/// The same for a prefix of list(): "" or a directory and '/'.
Status check_prefix(std::string_view prefix);

}  // namespace shardwright::detail
