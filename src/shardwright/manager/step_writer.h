/// One step, whoever fills it.
#pragma once

#include "shardwright/engine/save_ranks.h"
#include "shardwright/manager/write_step.h"

namespace shardwright {

/// write_step() with the tensors written by `fill`: content.tensors are those of `ranks` ranks, merged. boxes: Gathered::boxes.
Result<WrittenStep> write_step_filled(const std::string& root, const StepNames& names, const StepContent& content,
                                      const StepConflict& conflict, const JobOptions& options, int ranks,
                                      const std::vector<std::vector<HashedBox>>& boxes, const Fill& fill);

}  // namespace shardwright
