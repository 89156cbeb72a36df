#include "shardwright/store/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "shardwright/store/file_handle.h"

namespace shardwright::detail {

std::string parent_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Status sync_directory(const std::string& path) {
  FileHandle handle(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle) return errno_error(errno, "cannot open directory", path);
  // Some network file systems have no fsync of directories; theirs are durable when the call returns, or never.
  if (::fsync(handle.get()) != 0 && errno != EINVAL) return errno_error(errno, "cannot sync directory", path);
  return {};
}

Status make_directories(const std::string& path) {
  std::vector<std::string> missing;
  std::string at = path;
  struct stat info;
  while (::stat(at.c_str(), &info) != 0) {
    if (errno != ENOENT || at == "/") return errno_error(errno, "cannot look at", at);
    missing.push_back(at);
    at = parent_of(at);
  }
  if (!S_ISDIR(info.st_mode)) return errno_error(ENOTDIR, "cannot make a directory below", at);
  for (; !missing.empty(); missing.pop_back()) {
    if (::mkdir(missing.back().c_str(), 0777) != 0 && errno != EEXIST) {
      return errno_error(errno, "cannot make directory", missing.back());
    }
    SHARDWRIGHT_TRY(sync_directory(parent_of(missing.back())));
  }
  return {};
}

Result<std::vector<std::string>> names_in(const std::string& path) {
  struct Close {
    void operator()(DIR* directory) const { ::closedir(directory); }
  };
  std::vector<std::string> names;
  std::unique_ptr<DIR, Close> directory(::opendir(path.c_str()));
  if (!directory && errno == ENOENT) return names;
  if (!directory) return errno_error(errno, "cannot list directory", path);
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return errno_error(errno, "cannot list directory", path);
  return names;
}

Status sync_directories_below(const std::string& path) {
  std::vector<std::string> directories = {path};
  for (size_t i = 0; i < directories.size(); ++i) {
    SHARDWRIGHT_ASSIGN(auto names, names_in(directories[i]));
    for (const std::string& name : names) {
      struct stat info;
      std::string child = directories[i] + "/" + name;
      if (::lstat(child.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) directories.push_back(std::move(child));
    }
  }
  for (; !directories.empty(); directories.pop_back()) SHARDWRIGHT_TRY(sync_directory(directories.back()));
  return {};
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR || errno == EISDIR) return {};
  return errno_error(errno, "cannot remove", path);
}

Result<std::string> resolve_links(const std::string& path) {
  std::string at = path;
  for (int links = 0; links < 40; ++links) {
    struct stat info;
    if (::lstat(at.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return at;
    char target[PATH_MAX];
    ssize_t length = ::readlink(at.c_str(), target, sizeof target);
    if (length < 0) return errno_error(errno, "cannot read link", at);
    std::string next(target, static_cast<size_t>(length));
    at = next.starts_with('/') ? next : fmt::format("{}/{}", parent_of(at), next);
  }
  return errno_error(ELOOP, "cannot follow link", path);
}

bool same_mount(const std::string& directory_a, const std::string& directory_b) {
  struct statx a, b;
  constexpr unsigned kWanted = STATX_INO | STATX_MNT_ID;
  if (::statx(AT_FDCWD, directory_a.c_str(), 0, kWanted, &a) != 0) return false;
  if (::statx(AT_FDCWD, directory_b.c_str(), 0, kWanted, &b) != 0) return false;
  bool mounts_known = (a.stx_mask & b.stx_mask & STATX_MNT_ID) != 0;
  return a.stx_dev_major == b.stx_dev_major && a.stx_dev_minor == b.stx_dev_minor &&
         (!mounts_known || a.stx_mnt_id == b.stx_mnt_id);
}

}  // namespace shardwright::detail
