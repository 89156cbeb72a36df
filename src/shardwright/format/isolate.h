/// Metadata parsers that are not ours (libhdf5) in a process that can do no harm.
#pragma once

#include <functional>

#include "shardwright/format/format.h"

namespace shardwright {

/// open(options) here, or when options.isolate in a forked child: address space limited to what this process has plus max_metadata_bytes
/// and 256 MiB, no sockets, no exec, 60 seconds. The child's answer (catalogue or error, and findings) comes through a pipe and is checked
/// like a file. Errors: those of `open`; kCorrupt when the child dies or answers nonsense; kResourceExhausted for time; kUnsupported
/// when the system cannot isolate.
Result<Catalog> isolate_if_asked(const OpenOptions& options,
                                 const std::function<Result<Catalog>(const OpenOptions&)>& open);

/// For tests: the child with another deadline.
Result<Catalog> open_isolated(const OpenOptions& options, int timeout_ms,
                              const std::function<Result<Catalog>(const OpenOptions&)>& open);

}  // namespace shardwright
