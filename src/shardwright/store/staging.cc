#include "shardwright/store/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>

#include "shardwright/store/directory.h"

namespace shardwright::detail {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string make_id() {
  std::random_device random;
  std::string id = std::to_string(::getpid()) + "-";
  for (int i = 0; i < 16; ++i) id += kHexDigits[random() % 16];
  return id;
}

enum class Locked { kYes, kHeld, kCannotTell };

Locked take_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Locked::kHeld;
    if (errno != EINTR) return Locked::kCannotTell;  // a file system without locks
  }
  return Locked::kYes;
}

/// A link in files/ that points to an object staged elsewhere: only names of our own making count, whatever a link says.
std::optional<std::string> staged_elsewhere(const std::string& link, const std::string& id) {
  std::array<char, PATH_MAX> target;
  ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  if (length <= 0) return std::nullopt;
  std::string path(target.data(), static_cast<size_t>(length));
  if (path.front() != '/' || !name_of(path).starts_with(std::string(kStagingPrefix) + id + ".")) return std::nullopt;
  return path;
}

/// Removes what is below `path`, then it. Links are removed, never followed but for objects staged elsewhere.
Status remove_tree(const std::string& path, const std::string& id) {
  SHARDWRIGHT_ASSIGN(auto names, names_in(path));
  for (const std::string& name : names) {
    std::string child = fmt::format("{}/{}", path, name);
    struct stat info;
    if (::lstat(child.c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) {
      SHARDWRIGHT_TRY(remove_tree(child, id));
      continue;
    }
    if (S_ISLNK(info.st_mode)) {
      if (auto elsewhere = staged_elsewhere(child, id)) SHARDWRIGHT_TRY(remove_file(*elsewhere));
    }
    SHARDWRIGHT_TRY(remove_file(child));
  }
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return errno_error(errno, "cannot remove directory", path);
  return {};
}

std::string id_of(const std::string& path) {
  std::string name = name_of(path);
  return name.substr(name.rfind(kStagingPrefix) + kStagingPrefix.size());
}

}  // namespace

bool is_staging_id(std::string_view id) {
  size_t dash = id.find('-');
  if (dash == std::string_view::npos || dash == 0 || dash > 10 || id.size() != dash + 17) return false;
  auto digits = id.substr(0, dash), hex = id.substr(dash + 1);
  return digits.find_first_not_of("0123456789") == std::string_view::npos &&
         hex.find_first_not_of(kHexDigits) == std::string_view::npos;
}

std::string sibling_prefix(std::string_view name) {
  // A name may have 255 bytes; prefix and id must fit as well.
  return "." + std::string(name.substr(0, 150)) + std::string(kStagingPrefix);
}

Staging& Staging::operator=(Staging&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

Staging::~Staging() {
  // Explicitly: a forked child has the descriptor too, and would keep the lock for as long as it lives.
  if (lock_) ::flock(lock_.get(), LOCK_UN);
}

Result<Staging> Staging::create(const std::string& parent, const std::string& prefix) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    std::string path = fmt::format("{}/{}{}", parent, prefix, make_id());
    if (::mkdir(path.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return errno_error(errno, "cannot make a directory in", parent);
    }
    // Somebody who recovers may take it for dead until it is locked, and remove it: then begin anew.
    FileHandle lock(::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!lock && errno == ENOENT) continue;
    if (!lock) {
      Error error = errno_error(errno, "cannot make a file in", path);
      ::rmdir(path.c_str());
      return error;
    }
    if (take_lock(lock.get()) == Locked::kHeld) continue;
    Staging staging(std::move(path), std::move(lock));
    struct stat info;
    if (::fstat(staging.lock_.get(), &info) != 0 || info.st_nlink == 0) continue;
    if (::mkdir(staging.files().c_str(), 0777) != 0) {
      Error error = errno_error(errno, "cannot make directory", staging.files());
      (void)staging.remove();
      return error;
    }
    return staging;
  }
  return fail(Code::kUnavailable, "cannot make a directory for unfinished files: something keeps removing it")
      .at_path(parent);
}

Result<std::optional<Staging>> Staging::adopt(const std::string& path) {
  std::string file = path + "/lock";
  FileHandle lock(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  // Network file systems lock only what is open for writing; elsewhere reading is enough.
  if (!lock && errno != ENOENT) lock = FileHandle(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock && errno == ENOENT) {
    // Either just being made, then it is not empty soon, or left between two steps, then it is empty.
    ::rmdir(path.c_str());
    return std::optional<Staging>();
  }
  if (!lock && (errno == EACCES || errno == EPERM || errno == EROFS)) return std::optional<Staging>();
  if (!lock) return errno_error(errno, "cannot open", file);
  if (take_lock(lock.get()) != Locked::kYes) return std::optional<Staging>();
  struct stat info;
  if (::fstat(lock.get(), &info) != 0 || info.st_nlink == 0) return std::optional<Staging>();
  return std::optional<Staging>(Staging(path, std::move(lock)));
}

Result<std::vector<std::string>> Staging::find(const std::string& parent, const std::string& prefix) {
  SHARDWRIGHT_ASSIGN(auto names, names_in(parent));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix) || !is_staging_id(std::string_view(name).substr(prefix.size()))) continue;
    struct stat info;
    std::string path = fmt::format("{}/{}", parent, name);
    if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) found.push_back(std::move(path));
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool Staging::is_owned(const std::string& path) {
  struct stat info;
  return ::lstat((path + "/lock").c_str(), &info) == 0;
}

Status Staging::remove() {
  SHARDWRIGHT_ASSIGN(auto names, names_in(path_));
  for (const std::string& name : names) {
    std::string child = path_ + "/" + name;
    struct stat info;
    if (name == "lock" || ::lstat(child.c_str(), &info) != 0) continue;
    SHARDWRIGHT_TRY(S_ISDIR(info.st_mode) ? remove_tree(child, id_of(path_)) : remove_file(child));
  }
  SHARDWRIGHT_TRY(remove_file(path_ + "/lock"));
  if (::rmdir(path_.c_str()) != 0 && errno != ENOENT) return errno_error(errno, "cannot remove directory", path_);
  return {};
}

}  // namespace shardwright::detail
