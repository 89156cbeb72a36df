/// Open files of a store: a bounded set of descriptors, and the version of every file as it was first seen.
#pragma once

#include <sys/stat.h>

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"
#include "shardwright/store/file_handle.h"

namespace shardwright::detail {

/// What tells two states of a file apart.
struct FileVersion {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t size = 0;
  int64_t modified_s = 0, modified_ns = 0;
  static FileVersion of(const struct stat& info);
  bool operator==(const FileVersion&) const = default;
};

/// One open file. Shared by readers, so that closing it in the cache cannot pull it away from a read.
class OpenFile {
 public:
  OpenFile(FileHandle handle, std::string path, FileVersion version)
      : handle_(std::move(handle)), path_(std::move(path)), version_(version) {}
  int fd() const { return handle_.get(); }
  /// A second descriptor for O_DIRECT, opened on first use; -1 where the file system has none.
  int direct_fd() const;
  const std::string& path() const { return path_; }
  const FileVersion& version() const { return version_; }
  /// kAborted when the file under the descriptor is no longer what it was when opened.
  Status check_unchanged() const;

 private:
  FileHandle handle_;
  std::string path_;
  FileVersion version_;
  mutable std::once_flag direct_once_;
  mutable FileHandle direct_;
};

/// Thread-safe. At most kMaxOpen files are held open; the least recently used one is closed and opened again when needed, with a
/// check that it is still the same file.
class FileCache {
 public:
  static constexpr size_t kMaxOpen = 64;
  explicit FileCache(std::string root) : root_(std::move(root)) {}

  /// Errors: kNotFound; kAborted when the file changed since it was pinned; kUnsupported for what is not a regular file.
  Result<std::shared_ptr<const OpenFile>> open(std::string_view key);
  /// Size, pinned; nullopt when absent or a directory. Errors as open().
  Result<std::optional<uint64_t>> size(std::string_view key);
  /// The root directory; null, with errno, while there is none.
  std::shared_ptr<const FileHandle> root();
  /// Drops pins and descriptors: after a commit of our own the files are other ones, and that is no surprise.
  void forget();
  std::string path_of(std::string_view key) const;

 private:
  struct Slot {
    std::string key;
    std::shared_ptr<const OpenFile> file;
  };
  Status pin(std::string_view key, const FileVersion& version);  // REQUIRES: mutex_ held
  Result<FileHandle> open_descriptor(const std::string& key);
  void insert(std::string_view key, std::shared_ptr<const OpenFile> file);  // REQUIRES: mutex_ held

  std::string root_;
  std::mutex mutex_;
  std::shared_ptr<const FileHandle> root_handle_;
  std::map<std::string, FileVersion, std::less<>> pins_;
  std::list<Slot> recent_;  // most recent first
  std::map<std::string, std::list<Slot>::iterator, std::less<>> index_;
};

}  // namespace shardwright::detail
