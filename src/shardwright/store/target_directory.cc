#include "shardwright/store/target_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <vector>

#include "shardwright/store/directory.h"

namespace shardwright::detail {
namespace {

/// "a/./b//c/" -> {"a", "b", "c"}; ".." is kept.
std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    if (!part.empty() && part != ".") parts.push_back(std::move(part));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Result<TargetDirectory> TargetDirectory::find(const std::string& path) {
  std::vector<std::string> parts = components(path);
  char resolved[PATH_MAX];
  TargetDirectory target;
  // Longest part of the path that exists.
  size_t known = parts.size() + 1;
  std::string at;
  do {
    if (known == 0) return errno_error(ENOENT, "cannot look at", path);
    --known;
    at = path.starts_with('/') ? "/" : ".";
    for (size_t i = 0; i < known; ++i) at += "/" + parts[i];
    if (::realpath(at.c_str(), resolved) != nullptr) break;
    if (errno == ENOTDIR) continue;  // found out again at the file that is in the way
    if (errno != ENOENT) return errno_error(errno, "cannot look at", at);
    struct stat info;
    if (::lstat(at.c_str(), &info) == 0) return fail(Code::kNotFound, "link points to nothing").at_path(at);
  } while (true);

  struct stat info;
  if (::stat(resolved, &info) != 0) return errno_error(errno, "cannot look at", resolved);
  if (!S_ISDIR(info.st_mode)) return fail(Code::kAlreadyExists, "is a file, but a directory is to be here").at_path(at);
  target.path = resolved;
  target.present = known == parts.size();
  if (target.present) {
    target.anchor = parent_of(target.path);
    target.name = name_of(target.path);
    return target;
  }
  target.anchor = target.path;
  target.name = parts[known];
  for (size_t i = known; i < parts.size(); ++i) {
    if (parts[i] == "..")
      return fail(Code::kNotFound, "path goes through a directory that does not exist").at_path(path);
    target.path += (target.path == "/" ? "" : "/") + parts[i];
    if (i > known) target.rest += (target.rest.empty() ? "" : "/") + parts[i];
  }
  return target;
}

}  // namespace shardwright::detail
