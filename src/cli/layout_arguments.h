/// --mesh and --layout, which several verbs take.
#pragma once

#include "cli/invocation.h"
#include "shardwright/layout/layout_map.h"

namespace shardwright::cli {

/// The map of the file, over the mesh of --mesh where that is given. A mesh alone has no rules. Errors: kInvalidArgument, as said by
/// parse_layout_file() with the file's path, or when neither is given.
Result<LayoutMap> read_layout(const Arguments& arguments);

}  // namespace shardwright::cli
