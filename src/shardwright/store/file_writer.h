/// One file being written.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "shardwright/store/file_handle.h"
#include "shardwright/store/store.h"

namespace shardwright::detail {

/// Writes at once and asks for writeback as it goes, so that the flush runs beside the copying and not after it.
class FileWriter : public Writer {
 public:
  /// Makes the file, which must not exist, and takes its space where the size is known. `finished` is called once, when it is durable.
  /// Errors: kAlreadyExists; kResourceExhausted (space, quota, inodes, largest size the file system has); then no file is left.
  static Result<std::unique_ptr<Writer>> create(const std::string& path, uint64_t size_bytes,
                                                std::function<void()> finished);

  /// One that another writer, of this process or another, made with this size.
  static Result<std::unique_ptr<Writer>> open(const std::string& path, uint64_t size_bytes,
                                              std::function<void()> finished);

  Status write(std::span<const WriteOp> ops) override;
  Status finish(uint64_t size_bytes) override;

 private:
  FileWriter(FileHandle handle, std::string path, uint64_t size, std::function<void()> finished)
      : handle_(std::move(handle)), path_(std::move(path)), size_(size), finished_(std::move(finished)) {}
  Status check_ends(std::span<const WriteOp> ops) const;
  Status write_run(std::span<const WriteOp> run);
  Status start_writeback(uint64_t begin, uint64_t end);

  FileHandle handle_;
  std::string path_;
  uint64_t size_;
  std::function<void()> finished_;
  std::mutex mutex_;
  uint64_t pending_begin_ = 0, pending_end_ = 0;  // written, writeback not asked for; one contiguous range
};

}  // namespace shardwright::detail
