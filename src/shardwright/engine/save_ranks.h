/// Saving what lies in the memories of several ranks.
#pragma once

#include <functional>

#include "shardwright/engine/jobs.h"

namespace shardwright {

/// Writes the objects of a draft, all but what seal() makes, into a transaction that has begun. format, options: what the draft was made by.
using Fill = std::function<Result<Executed>(Draft& draft, const Format& format, const WriteOptions& options,
                                            Transaction& transaction)>;

/// save_tensors() with the writing done by `fill`; defined where that is. tensors: as merge_catalogs() makes them, of so many ranks.
Result<CopySummary> save_filled(const Catalog& tensors, int ranks, const CopyRequest& request,
                                const JobOptions& options, const Fill& fill);

}  // namespace shardwright
