/// Layouts of a checkpoint: of its tensors, and those that it notes of its arrays, read and made. Orbax keeps them in `_sharding`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/layout/layout_report.h"

namespace shardwright {

/// As report_layout() takes it. The catalogue outlives it.
TensorToLay tensor_to_lay(const Catalog& catalog, TensorId id);

/// Where each array of the checkpoint was when it was saved, by its name. nullopt when nothing is noted. A map has one mesh: that which most arrays
/// were on; arrays of others, and entries that cannot be read, get no rule, and a remark.
Result<std::optional<LayoutMap>> saved_layout(const Catalog& catalog, std::vector<std::string>& remarks);

/// What WriteOptions::shardings takes: every tensor by the rules of a map, replicated where there is none.
/// Errors: kInvalidArgument for what cannot be laid out evenly; kUnsupported for devices without a number.
Result<std::vector<WriteOptions::Sharding>> shardings_by(const LayoutMap& map, const Catalog& tensors);

}  // namespace shardwright
