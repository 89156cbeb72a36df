/// Which tensors of a checkpoint are wanted, under which names and types.
#pragma once

#include <vector>

#include "shardwright/engine/jobs.h"

namespace shardwright {

struct Selected {
  Catalog want;                  ///< specs, ties, values and side files; in the source's order
  std::vector<TensorId> origin;  ///< source tensor of each; empty: the same ids
};

/// Errors: kInvalidArgument for a pattern or a collision of new names (both old names said); kNotFound when an include glob selects nothing,
/// with near names. A tie whose kept name is left out is kept by its first remaining name.
Result<Selected> select_tensors(const Catalog& from, const Selection& selection);

/// Ids of these names, in their order; names empty: all tensors. Errors: kNotFound naming all that are missing, and what is near the first.
Result<std::vector<TensorId>> find_tensors(const Catalog& catalog, const std::vector<std::string>& names);

}  // namespace shardwright
