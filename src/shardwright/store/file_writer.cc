#include "shardwright/store/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <vector>

namespace shardwright::detail {
namespace {

constexpr size_t kMaxVectors = IOV_MAX;
constexpr uint64_t kWritebackBytes = 1 * MiB;

/// Takes the space now: a full disk is then known before any byte is copied.
Status reserve(int fd, uint64_t size, const std::string& path) {
  if (size == 0) return {};
  if (size > static_cast<uint64_t>(LLONG_MAX)) return errno_error(EFBIG, "cannot make a file of this size", path);
  int error = 0;
  do {
    error = ::fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) error = ::ftruncate(fd, static_cast<off_t>(size)) == 0 ? 0 : errno;
  if (error == 0) return {};
  if (error == EFBIG) {
    return fail(Code::kResourceExhausted, "file is larger than the file system allows")
        .at_path(path)
        .with_found(std::to_string(size) + " bytes")
        .with_hint("choose a smaller --max-shard-size");
  }
  return errno_error(error, "cannot reserve " + std::to_string(size) + " bytes for", path);
}

}  // namespace

Result<std::unique_ptr<Writer>> FileWriter::create(const std::string& path, uint64_t size_bytes,
                                                   std::function<void()> finished) {
  FileHandle handle(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!handle) return errno_error(errno, "cannot make file", path);
  if (size_bytes != kUnknown) {
    if (auto status = reserve(handle.get(), size_bytes, path); !status.ok()) {
      ::unlink(path.c_str());
      return std::move(status.error());
    }
  }
  return std::unique_ptr<Writer>(new FileWriter(std::move(handle), path, size_bytes, std::move(finished)));
}

Result<std::unique_ptr<Writer>> FileWriter::open(const std::string& path, uint64_t size_bytes,
                                                 std::function<void()> finished) {
  FileHandle handle(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!handle) return errno_error(errno, "cannot open file", path);
  struct stat info;
  if (::fstat(handle.get(), &info) != 0) return errno_error(errno, "cannot look at", path);
  if (static_cast<uint64_t>(info.st_size) != size_bytes)
    return fail(Code::kInternal, "file was created with another size")
        .at_path(path)
        .with_found(std::to_string(info.st_size) + " bytes")
        .with_expected(std::to_string(size_bytes) + " bytes");
  return std::unique_ptr<Writer>(new FileWriter(std::move(handle), path, size_bytes, std::move(finished)));
}

Status FileWriter::check_ends(std::span<const WriteOp> ops) const {
  if (!handle_) return fail(Code::kInternal, "write after finish").at_path(path_);
  for (const WriteOp& op : ops) {
    auto end = checked_add(op.offset, op.bytes.size());
    if (end && *end <= (size_ != kUnknown ? size_ : static_cast<uint64_t>(LLONG_MAX))) continue;
    return fail(Code::kInternal, "write beyond the end of the file")
        .at_path(path_)
        .at_offset(op.offset)
        .with_found(std::to_string(op.bytes.size()) + " bytes")
        .with_expected("a file of " + std::to_string(size_) + " bytes");
  }
  return {};
}

Status FileWriter::write(std::span<const WriteOp> ops) {
  SHARDWRIGHT_TRY(check_ends(ops));
  std::vector<WriteOp> sorted;
  sorted.reserve(ops.size());
  for (const WriteOp& op : ops) {
    if (!op.bytes.empty()) sorted.push_back(op);
  }
  // Stable: where ops overlap, the later one wins, as if they came one by one.
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const WriteOp& a, const WriteOp& b) { return a.offset < b.offset; });
  for (size_t begin = 0, end; begin < sorted.size(); begin = end) {
    for (end = begin + 1; end < sorted.size() && end - begin < kMaxVectors; ++end) {
      if (sorted[end].offset != sorted[end - 1].offset + sorted[end - 1].bytes.size()) break;
    }
    SHARDWRIGHT_TRY(write_run({&sorted[begin], end - begin}));
  }
  return {};
}

Status FileWriter::write_run(std::span<const WriteOp> run) {
  std::vector<iovec> vectors;
  vectors.reserve(run.size());
  for (const WriteOp& op : run) vectors.push_back({const_cast<std::byte*>(op.bytes.data()), op.bytes.size()});
  uint64_t offset = run.front().offset;
  for (size_t next = 0; next < vectors.size();) {
    ssize_t put =
        ::pwritev(handle_.get(), &vectors[next], static_cast<int>(vectors.size() - next), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return errno_error(put == 0 ? EIO : errno, "cannot write", path_).at_offset(offset);
    offset += static_cast<uint64_t>(put);
    for (auto left = static_cast<size_t>(put); left > 0;) {
      size_t taken = std::min(left, vectors[next].iov_len);
      vectors[next].iov_base = static_cast<std::byte*>(vectors[next].iov_base) + taken;
      vectors[next].iov_len -= taken;
      left -= taken;
      if (vectors[next].iov_len == 0) ++next;
    }
  }
  return start_writeback(run.front().offset, offset);
}

Status FileWriter::start_writeback(uint64_t begin, uint64_t end) {
  {
    std::lock_guard lock(mutex_);
    if (begin == pending_end_) begin = pending_begin_;
    if (end == pending_begin_) end = pending_end_;
    bool enough = end - begin >= kWritebackBytes;
    // Scattered small writes replace one another here: they are left to the fsync.
    pending_begin_ = enough ? 0 : begin;
    pending_end_ = enough ? 0 : end;
    if (!enough) return {};
  }
  auto length = static_cast<off_t>(end - begin);
  if (::sync_file_range(handle_.get(), static_cast<off_t>(begin), length, SYNC_FILE_RANGE_WRITE) == 0) return {};
  if (errno == EIO || errno == ENOSPC || errno == EDQUOT) {
    return errno_error(errno, "cannot write back", path_).at_offset(begin);
  }
  return {};  // not every file system has it; only a hint
}

Status FileWriter::finish(uint64_t size_bytes) {
  if (!handle_ || (size_ != kUnknown && size_ != size_bytes)) {
    return fail(Code::kInternal, "file finished twice or with another size")
        .at_path(path_)
        .with_found(std::to_string(size_bytes) + " bytes")
        .with_expected(std::to_string(size_) + " bytes");
  }
  int fd = handle_.release();
  int error = 0;
  if (size_ == kUnknown && ::ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) error = errno;
  // Never retried: the kernel may have dropped the pages that it could not write, and would then report success.
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && errno != EINTR && error == 0) error = errno;
  if (error != 0) return errno_error(error, "cannot write to disk", path_);
  finished_();
  return {};
}

}  // namespace shardwright::detail
