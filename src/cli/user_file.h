/// Files that the user names, other than checkpoints.
#pragma once

#include <string>
#include <string_view>

#include "shardwright/base/json.h"

namespace shardwright::cli {

/// A whole file of JSON, read like any object: capped, and parsed by the strict parser. Errors: kInvalidArgument where it is wrong.
Result<Json> read_json_file(const std::string& path);
/// The same of a file whose name ends in .toml, or that does not begin with '{': TOML, made into JSON. Dates are refused.
Result<Json> read_json_or_toml_file(const std::string& path);
/// Puts a file in place, whole, whatever was there.
Status write_text_file(const std::string& path, std::string_view text);

}  // namespace shardwright::cli
