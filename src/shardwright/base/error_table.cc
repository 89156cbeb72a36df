#include "shardwright/base/error_table.h"

#include <array>
#include <cerrno>

namespace shardwright {
namespace {

constexpr std::array<ErrorRow, 11> kRows = {{
    {Code::kInvalidArgument, "invalid_argument", 2, "InvalidArgumentError", "ValueError", false,
     "the request cannot be meant"},
    {Code::kNotFound, "not_found", 3, "NotFoundError", "FileNotFoundError", false,
     "a file or tensor that was asked for is not there"},
    {Code::kAlreadyExists, "already_exists", 9, "AlreadyExistsError", "FileExistsError", false,
     "the target exists (see --overwrite)"},
    {Code::kCorrupt, "corrupt", 4, "CorruptError", "ValueError", false,
     "bytes contradict their format, index or checksum"},
    {Code::kUnsupported, "unsupported", 6, "UnsupportedError", "NotImplementedError", false,
     "a format, dtype or feature this build cannot handle"},
    {Code::kIo, "io", 5, "IoError", "OSError", false, "the operating system reported an input or output error"},
    {Code::kUnavailable, "unavailable", 5, "UnavailableError", "OSError", true, "temporary; a retry may help"},
    {Code::kPermission, "permission", 7, "PermissionDeniedError", "PermissionError", false, "not allowed"},
    {Code::kResourceExhausted, "resource_exhausted", 8, "ResourceExhaustedError", "MemoryError", false,
     "memory budget, disk space, inodes or open files"},
    {Code::kAborted, "aborted", 10, "AbortedError", "InterruptedError", false,
     "cancelled, or the source changed while it was read"},
    {Code::kInternal, "internal", 70, "InternalError", "RuntimeError", false, "a bug in shardwright"},
}};

}  // namespace

std::span<const ErrorRow> error_table() { return kRows; }
const ErrorRow& error_row(Code code) { return kRows[static_cast<size_t>(code)]; }

Code code_of_errno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Code::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS: return Code::kPermission;
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP: return Code::kNotFound;
    case EEXIST: return Code::kAlreadyExists;
    default: return Code::kIo;
  }
}

}  // namespace shardwright
