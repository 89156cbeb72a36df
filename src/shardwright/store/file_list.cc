#include "shardwright/store/file_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "shardwright/store/file_handle.h"
#include "shardwright/store/key.h"

namespace shardwright::detail {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

enum class Kind { kFile, kDirectory, kOther };

Kind kind_of(int directory_fd, const dirent& entry) {
  if (entry.d_type == DT_REG) return Kind::kFile;
  if (entry.d_type == DT_DIR) return Kind::kDirectory;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return Kind::kOther;
  struct stat info;
  if (::fstatat(directory_fd, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) return Kind::kOther;
  if (S_ISDIR(info.st_mode)) return Kind::kDirectory;
  if (S_ISLNK(info.st_mode) && ::fstatat(directory_fd, entry.d_name, &info, 0) != 0) return Kind::kOther;
  return S_ISREG(info.st_mode) ? Kind::kFile : Kind::kOther;  // a link to a directory is neither
}

Result<Directory> open_directory(int root_fd, const std::string& path, const std::string& shown, int extra_flags) {
  FileHandle handle(
      ::openat(root_fd, path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | extra_flags));
  if (!handle) return errno_error(errno, "cannot list directory", shown);
  Directory directory(::fdopendir(handle.get()));
  if (!directory) return errno_error(errno, "cannot list directory", shown);
  handle.release();
  return directory;
}

}  // namespace

Result<std::vector<std::string>> list_files(int root_fd, std::string_view prefix, const std::string& shown_path) {
  std::vector<std::string> files, pending = {std::string(prefix)};
  while (!pending.empty()) {
    std::string at = std::move(pending.back());
    pending.pop_back();
    bool top = at.size() == prefix.size();
    auto directory = open_directory(root_fd, at, shown_path, top ? 0 : O_NOFOLLOW);
    if (!directory.ok()) {
      bool absent = directory.error().code == Code::kNotFound;
      if (absent || (!top && directory.error().code == Code::kPermission)) continue;
      return std::move(directory.error());
    }
    errno = 0;
    while (const dirent* entry = ::readdir(directory->get())) {
      std::string_view name = entry->d_name;
      if (name == "." || name == ".." || is_reserved_name(name)) continue;
      Kind kind = kind_of(::dirfd(directory->get()), *entry);
      if (kind == Kind::kFile) files.push_back(at + entry->d_name);
      if (kind == Kind::kDirectory) pending.push_back(at + entry->d_name + "/");
      errno = 0;
    }
    if (errno != 0) return errno_error(errno, "cannot list directory", shown_path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace shardwright::detail
