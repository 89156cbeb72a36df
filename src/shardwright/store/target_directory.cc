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

/// Of a path's components the most, from the first, that exist together, without links.
struct Existing {
  size_t parts;
  std::string path;      ///< as given
  std::string resolved;  ///< absolute
};

Result<Existing> existing_part(const std::string& path, const std::vector<std::string>& parts) {
  char resolved[PATH_MAX];
  for (size_t known = parts.size() + 1; known-- > 0;) {
    std::string at = path.starts_with('/') ? "/" : ".";
    for (size_t i = 0; i < known; ++i) at += "/" + parts[i];
    if (::realpath(at.c_str(), resolved) != nullptr) return Existing{known, at, resolved};
    if (errno == ENOTDIR) continue;  // found out again at the file that is in the way
    if (errno != ENOENT) return errno_error(errno, "cannot look at", at);
    struct stat info;
    if (::lstat(at.c_str(), &info) == 0) return fail(Code::kNotFound, "link points to nothing").at_path(at);
  }
  return errno_error(ENOENT, "cannot look at", path);
}

}  // namespace

Result<TargetDirectory> TargetDirectory::find(const std::string& path) {
  std::vector<std::string> parts = components(path);
  SHARDWRIGHT_ASSIGN(Existing there, existing_part(path, parts));
  TargetDirectory target;
  struct stat info;
  if (::stat(there.resolved.c_str(), &info) != 0) return errno_error(errno, "cannot look at", there.resolved);
  if (!S_ISDIR(info.st_mode))
    return fail(Code::kAlreadyExists, "is a file, but a directory is to be here").at_path(there.path);
  target.path = std::move(there.resolved);
  target.present = there.parts == parts.size();
  if (target.present) {
    target.anchor = parent_of(target.path);
    target.name = name_of(target.path);
    return target;
  }
  target.anchor = target.path;
  target.name = parts[there.parts];
  for (size_t i = there.parts; i < parts.size(); ++i) {
    if (parts[i] == "..")
      return fail(Code::kNotFound, "path goes through a directory that does not exist").at_path(path);
    target.path += (target.path == "/" ? "" : "/") + parts[i];
    if (i > there.parts) target.rest += (target.rest.empty() ? "" : "/") + parts[i];
  }
  return target;
}

}  // namespace shardwright::detail
