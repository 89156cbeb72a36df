/// Single elements of a tensor on disk, wherever they lie in it.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/array_text.h"
#include "shardwright/engine/plan.h"
#include "shardwright/format/format.h"

namespace shardwright::cli {

struct TensorSource {
  const Checkpoint& checkpoint;
  TensorId tensor;
  PlanOptions plan{};
  Catalog::Spec spec() const { return checkpoint.catalog.spec(tensor); }
};

/// Elements at every combination of the indices (one list per dimension, in any order), in C order of the lists. Reads little more than
/// those elements; memory grows with their number. Errors: those of read_box(); kUnsupported for large tensors of sub-byte types whose
/// rows do not start at bytes.
Result<std::vector<Element>> read_elements(const TensorSource& source,
                                           const std::vector<std::vector<int64_t>>& indices);

}  // namespace shardwright::cli
