#include "shardwright/store/file_read.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <span>
#include <vector>

namespace shardwright::detail {
namespace {

constexpr size_t kMaxVectors = IOV_MAX;

Status check_ends(const OpenFile& file, std::span<const FileRange> ranges) {
  uint64_t size = file.version().size;
  for (const FileRange& range : ranges) {
    auto end = checked_add(range.offset, range.size);
    if (end && *end <= size) continue;
    return fail(Code::kCorrupt, "file is shorter than what should be in it")
        .at_path(file.path())
        .at_offset(range.offset)
        .with_found(std::to_string(size) + " bytes in the file")
        .with_expected(std::to_string(range.size) + " bytes at this offset")
        .with_hint("the file may be truncated: compare its size with the original's");
  }
  return {};
}

/// The file got shorter after it was opened: say that it changed, not that it is corrupt.
Error unexpected_end(const OpenFile& file, uint64_t offset) {
  if (auto status = file.check_unchanged(); !status.ok()) return std::move(status.error());
  return fail(Code::kIo, "read ended before the end of the file").at_path(file.path()).at_offset(offset);
}

Error read_error(const OpenFile& file, uint64_t offset) {
  return errno_error(errno, "cannot read", file.path()).at_offset(offset);
}

/// Neighbours in both file and memory become one range: fewer vectors, and larger direct reads.
std::vector<FileRange> coalesce(std::span<const FileRange> ranges) {
  std::vector<FileRange> out;
  out.reserve(ranges.size());
  for (const FileRange& range : ranges) {
    if (range.size == 0) continue;
    if (!out.empty() && out.back().end() == range.offset && out.back().data + out.back().size == range.data) {
      out.back().size += range.size;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

/// Reads the whole range with O_DIRECT; false when the file system would not (then nothing is lost: read it buffered).
Result<bool> read_direct(const OpenFile& file, const FileRange& range, std::atomic<uint64_t>& counter) {
  int fd = file.direct_fd();
  if (fd < 0) return false;
  uint64_t done = 0;
  while (done < range.size) {
    ssize_t got = ::pread(fd, range.data + done, range.size - done, static_cast<off_t>(range.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL) return false;
    if (got < 0) return read_error(file, range.offset + done);
    if (got == 0) return unexpected_end(file, range.offset + done);
    counter += static_cast<uint64_t>(got);
    done += static_cast<uint64_t>(got);
    if (done % kDirectAlign != 0) return false;  // an odd short read; cannot go on aligned
  }
  return true;
}

/// Reads of `ranges` what can be read directly, and returns what is left to be read buffered, sorted.
Result<std::vector<FileRange>> read_direct_parts(const OpenFile& file, std::span<const FileRange> ranges,
                                                 std::atomic<uint64_t>& counter) {
  std::vector<FileRange> rest;
  for (const FileRange& range : ranges) {
    auto address = reinterpret_cast<uintptr_t>(range.data);
    if (range.size < kDirectBytes || (address ^ range.offset) % kDirectAlign != 0) {
      rest.push_back(range);
      continue;
    }
    uint64_t begin = round_up(range.offset, kDirectAlign), end = range.end() / kDirectAlign * kDirectAlign;
    FileRange middle{begin, range.data + (begin - range.offset), end - begin};
    SHARDWRIGHT_ASSIGN(bool done, read_direct(file, middle, counter));
    if (!done) {
      rest.push_back(range);
      continue;
    }
    if (begin > range.offset) rest.push_back({range.offset, range.data, begin - range.offset});
    if (range.end() > end) rest.push_back({end, range.data + (end - range.offset), range.end() - end});
  }
  return rest;
}

/// One preadv after another until every vector is full. `vectors` is consumed.
Status read_vectors(const OpenFile& file, uint64_t offset, std::vector<iovec>& vectors,
                    std::atomic<uint64_t>& counter) {
  size_t next = 0;
  while (next < vectors.size()) {
    int count = static_cast<int>(std::min(vectors.size() - next, kMaxVectors));
    ssize_t got = ::preadv(file.fd(), &vectors[next], count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return read_error(file, offset);
    if (got == 0) return unexpected_end(file, offset);
    counter += static_cast<uint64_t>(got);
    offset += static_cast<uint64_t>(got);
    for (auto left = static_cast<size_t>(got); left > 0;) {
      size_t taken = std::min(left, vectors[next].iov_len);
      vectors[next].iov_base = static_cast<std::byte*>(vectors[next].iov_base) + taken;
      vectors[next].iov_len -= taken;
      left -= taken;
      if (vectors[next].iov_len == 0) ++next;
    }
  }
  return {};
}

/// Runs of neighbours and small gaps. All gaps go to one scratch buffer: what lands there is never looked at.
Status read_buffered(const OpenFile& file, std::span<const FileRange> ranges, uint64_t merge_gap,
                     std::atomic<uint64_t>& counter) {
  std::unique_ptr<std::byte[]> scratch;
  std::vector<iovec> vectors;
  for (size_t i = 0; i < ranges.size();) {
    uint64_t start = ranges[i].offset, end = start;
    vectors.clear();
    for (; i < ranges.size() && ranges[i].offset >= end && (vectors.empty() || ranges[i].offset - end <= merge_gap);
         ++i) {
      if (uint64_t gap = ranges[i].offset - end; gap > 0) {
        if (!scratch) scratch.reset(new std::byte[merge_gap]);
        vectors.push_back({scratch.get(), gap});
      }
      vectors.push_back({ranges[i].data, ranges[i].size});
      end = ranges[i].end();
    }
    SHARDWRIGHT_TRY(read_vectors(file, start, vectors, counter));
  }
  return {};
}

}  // namespace

Status read_ranges(const OpenFile& file, std::span<const FileRange> ranges, const ReadRules& rules,
                   std::atomic<uint64_t>& counter) {
  SHARDWRIGHT_TRY(check_ends(file, ranges));
  std::vector<FileRange> left = coalesce(ranges);
  if (rules.direct) {
    SHARDWRIGHT_ASSIGN(left, read_direct_parts(file, left, counter));
  }
  SHARDWRIGHT_TRY(read_buffered(file, left, rules.merge_gap_bytes, counter));
  return file.check_unchanged();  // afterwards: what was read is then of the pinned version
}

}  // namespace shardwright::detail
