#include "shardwright/manager/tree_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "shardwright/store/directory.h"

namespace shardwright::detail {
namespace {

namespace fs = std::filesystem;

void add(TreeFacts& facts, const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (!means_missing(errno)) facts.trouble = errno_error(errno, "cannot look at", path);
    return;
  }
  auto changed =
      static_cast<uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(info.st_mtim.tv_nsec);
  facts.newest_ns = std::max(facts.newest_ns, changed);
  if (!S_ISREG(info.st_mode)) return;
  ++facts.files;
  facts.bytes += static_cast<uint64_t>(info.st_size);
  if (info.st_nlink > 1) facts.shared_bytes += static_cast<uint64_t>(info.st_size);
}

}  // namespace

bool means_missing(int number) { return number == ENOENT || number == ENOTDIR; }

bool TreeFacts::changed_within(std::chrono::seconds age) const {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(newest_ns) < age;
}

TreeFacts look_at_tree(const std::string& directory) {
  TreeFacts facts;
  add(facts, directory);
  std::error_code error;
  fs::recursive_directory_iterator at(directory, error), end;
  for (; !error && at != end; at.increment(error)) add(facts, at->path().string());
  if (error && !means_missing(error.value())) facts.trouble = errno_error(error.value(), "cannot look into", directory);
  return facts;
}

Status remove_tree(const std::string& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (error && error.value() != ENOENT) return errno_error(error.value(), "cannot remove", directory);
  return {};
}

Status move_directory(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return errno_error(errno, "cannot rename to " + to, from);
  SHARDWRIGHT_TRY(sync_directory(parent_of(to)));
  return parent_of(from) == parent_of(to) ? Status() : sync_directory(parent_of(from));
}

Status move_to_free_name(const std::string& from, const std::string& to) {
  int result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE), number = errno;
  if (result != 0 && (number == EINVAL || number == ENOSYS || number == ENOTSUP)) {
    // Not every file system knows the flag. A plain rename of a directory replaces an empty directory at most.
    result = ::rename(from.c_str(), to.c_str());
    number = errno;
  }
  if (result != 0 && (number == EEXIST || number == ENOTEMPTY || number == ENOTDIR))
    return fail(Code::kAlreadyExists, "another program has made this meanwhile").at_path(to);
  if (result != 0) return errno_error(number, "cannot rename to " + to, from);
  return sync_directory(parent_of(to));
}

Result<bool> exchange_directories(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
    return errno_error(errno, "cannot exchange with " + a, b);
  }
  SHARDWRIGHT_TRY(sync_directory(parent_of(b)));
  return true;
}

}  // namespace shardwright::detail
