/// A mesh and its rules as users write them: JSON, or TOML made into it.
#pragma once

#include <optional>

#include "shardwright/base/json.h"
#include "shardwright/layout/layout_map.h"

namespace shardwright {

/// {"mesh": {"axis_names": ["data", "model"], "shape": [2, 4], "devices": [...]},   devices: names or ids, may be missing
///  "match": "search",     "fullmatch" or "exact"
///  "uneven": "refuse",    or "chunk"; what is not written here is the default
///  "rules": {"attn.*kernel": [null, "model"], "embed": [["data", "model"]]}}
/// A rule is one entry per dimension: an axis, a list of axes, or none (null, ""). It may also be a text: a Shardy attribute, a GSPMD string
/// or DTensor placements over this mesh. `mesh`, when given, wins over the file's.
/// Errors: kInvalidArgument naming the key, or the rule and what is wrong with it; no mesh in either place; unknown keys.
Result<LayoutMap> parse_layout_file(const Json& file, std::optional<DeviceMesh> mesh = std::nullopt);

}  // namespace shardwright
