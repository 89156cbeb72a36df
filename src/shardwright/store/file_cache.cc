#include "shardwright/store/file_cache.h"

#include <fcntl.h>

#include <cerrno>

namespace shardwright::detail {
namespace {

Error changed(const std::string& path, const FileVersion& now, const FileVersion& then) {
  Error error = fail(Code::kAborted, "file changed while it was in use").at_path(path);
  if (now.size != then.size) {
    error.found = std::to_string(now.size) + " bytes";
    error.expected = std::to_string(then.size) + " bytes, as when it was opened";
  } else {
    error.found = now.inode != then.inode ? "another file under this name" : "a later modification time";
  }
  error.hint = "run again when no other program writes it";
  return error;
}

}  // namespace

FileVersion FileVersion::of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

int OpenFile::direct_fd() const {
  std::call_once(direct_once_, [this] {
    // Through /proc, so that it is the same file even when the name has been given to another one.
    std::string self = "/proc/self/fd/" + std::to_string(handle_.get());
    direct_ = FileHandle(::open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  });
  return direct_.get();
}

Status OpenFile::check_unchanged() const {
  struct stat info;
  if (::fstat(handle_.get(), &info) != 0) return errno_error(errno, "cannot look at", path_);
  FileVersion now = FileVersion::of(info);
  if (now != version_) return changed(path_, now, version_);
  return {};
}

std::string FileCache::path_of(std::string_view key) const {
  if (key.empty()) return root_;
  if (key.front() == '/') return std::string(key);  // attached
  if (root_.empty() || root_ == ".") return std::string(key);
  return root_.back() == '/' ? root_ + std::string(key) : root_ + "/" + std::string(key);
}

std::shared_ptr<const FileHandle> FileCache::root() {
  std::lock_guard lock(mutex_);
  if (!root_handle_) {
    FileHandle handle(::open(root_.empty() ? "." : root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (handle) root_handle_ = std::make_shared<const FileHandle>(std::move(handle));
  }
  return root_handle_;
}

void FileCache::forget() {
  std::lock_guard lock(mutex_);
  root_handle_.reset();
  pins_.clear();
  recent_.clear();
  index_.clear();
}

Status FileCache::pin(std::string_view key, const FileVersion& version) {
  auto at = pins_.find(key);
  if (at == pins_.end()) {
    pins_.emplace(key, version);
  } else if (at->second != version) {
    return changed(path_of(key), version, at->second);
  }
  return {};
}

void FileCache::insert(std::string_view key, std::shared_ptr<const OpenFile> file) {
  if (index_.contains(key)) return;  // another thread was faster
  recent_.push_front({std::string(key), std::move(file)});
  index_.emplace(key, recent_.begin());
  if (recent_.size() > kMaxOpen) {
    index_.erase(recent_.back().key);
    recent_.pop_back();
  }
}

Result<FileHandle> FileCache::open_descriptor(const std::string& key) {
  auto directory = root();
  if (!directory) return errno_error(errno, "cannot open directory", root_);
  // O_NONBLOCK: a fifo under this name must not hang us; it has no effect on regular files.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  FileHandle handle(::openat(directory->get(), key.c_str(), kFlags));
  if (!handle && (errno == EMFILE || errno == ENFILE)) {
    {
      std::lock_guard lock(mutex_);
      recent_.clear();
      index_.clear();
    }
    handle = FileHandle(::openat(directory->get(), key.c_str(), kFlags));
  }
  if (!handle) return errno_error(errno, "cannot open", path_of(key));
  return handle;
}

Result<std::shared_ptr<const OpenFile>> FileCache::open(std::string_view key) {
  {
    std::lock_guard lock(mutex_);
    if (auto at = index_.find(key); at != index_.end()) {
      recent_.splice(recent_.begin(), recent_, at->second);
      return at->second->file;
    }
  }
  std::string name(key);
  SHARDWRIGHT_ASSIGN(FileHandle handle, open_descriptor(name));
  struct stat info;
  if (::fstat(handle.get(), &info) != 0) return errno_error(errno, "cannot look at", path_of(key));
  if (S_ISDIR(info.st_mode)) return fail(Code::kNotFound, "is a directory, not a file").at_path(path_of(key));
  if (!S_ISREG(info.st_mode)) return fail(Code::kUnsupported, "is not a regular file").at_path(path_of(key));
  FileVersion version = FileVersion::of(info);
  auto file = std::make_shared<const OpenFile>(std::move(handle), path_of(key), version);
  std::lock_guard lock(mutex_);
  SHARDWRIGHT_TRY(pin(key, version));
  insert(key, file);
  return file;
}

Result<std::optional<uint64_t>> FileCache::size(std::string_view key) {
  auto directory = root();
  struct stat info;
  std::string name(key);
  if (!directory || ::fstatat(directory->get(), name.c_str(), &info, 0) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return std::optional<uint64_t>();
    return errno_error(errno, "cannot look at", path_of(key));
  }
  if (S_ISDIR(info.st_mode)) return std::optional<uint64_t>();
  if (!S_ISREG(info.st_mode)) return fail(Code::kUnsupported, "is not a regular file").at_path(path_of(key));
  FileVersion version = FileVersion::of(info);
  std::lock_guard lock(mutex_);
  SHARDWRIGHT_TRY(pin(key, version));
  return std::optional<uint64_t>(version.size);
}

}  // namespace shardwright::detail
