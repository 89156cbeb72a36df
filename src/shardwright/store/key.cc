#include "shardwright/store/key.h"

#include "shardwright/base/text.h"

namespace shardwright::detail {
namespace {

bool has_reserved_component(std::string_view path) {
  while (!path.empty()) {
    size_t slash = path.find('/');
    if (is_reserved_name(path.substr(0, slash))) return true;
    if (slash == std::string_view::npos) return false;
    path.remove_prefix(slash + 1);
  }
  return false;
}

}  // namespace

Status check_key(std::string_view key) {
  if (!is_safe_relative_path(key)) {
    return fail(Code::kInvalidArgument, "name is not a path inside the directory")
        .with_found("'" + std::string(key) + "'")
        .with_expected("a relative path without '..'");
  }
  if (has_reserved_component(key)) {
    return fail(Code::kInvalidArgument, "name is reserved for unfinished writes")
        .with_found("'" + std::string(key) + "'");
  }
  return {};
}

Status check_directory(std::string_view under) {
  if (under.empty()) return {};
  return check_key(under);
}

Status check_prefix(std::string_view prefix) {
  if (prefix.empty()) return {};
  if (prefix.back() != '/') {
    return fail(Code::kInvalidArgument, "prefix of a listing does not end in '/'")
        .with_found("'" + std::string(prefix) + "'");
  }
  return check_key(prefix.substr(0, prefix.size() - 1));
}

}  // namespace shardwright::detail
