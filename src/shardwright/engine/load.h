/// A whole checkpoint, or a part of it, in memory of our own.
#pragma once

#include "shardwright/engine/jobs.h"

namespace shardwright {

/// Tensors in one arena of 2 MiB pages (page faults, not copying, are what loading into fresh memory costs).
struct Loaded {
  Catalog catalog;  ///< the tensors as kMemory pieces, C order, in the order asked for; ties share one place
  Slab arena;       ///< what they point into; freed with this
  View values(TensorId tensor) const;
};

/// names: empty for all. Tensors stand at 64-byte steps; those that are raw in a file stand where address and file offset agree modulo 4096,
/// so that a store opened with `direct` reads straight into place (in arenas of a MiB and more; smaller reads are buffered anyway).
/// Memory: the values, up to 4 KiB per gap between wanted tensors, and the plan's budget. Errors: kNotFound naming all that are missing, and what is
/// near the first.
Result<Loaded> load_checkpoint(const Checkpoint& checkpoint, const std::vector<std::string>& names,
                               const JobOptions& options);

}  // namespace shardwright
