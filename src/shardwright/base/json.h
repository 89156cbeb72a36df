/// JSON from untrusted files: the DOM for small documents. Large ones (headers, indexes) have their own streaming parsers.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright {

using Json = nlohmann::ordered_json;

/// Parses a whole document: UTF-8, depth at most 128, no duplicate keys in any object, nothing after the value but white space.
/// Integers keep 64 bits; larger ones become doubles, doubles too large are errors.
/// Errors: kCorrupt with the byte offset. Memory about 10 x text; callers cap the text.
Result<Json> parse_json(std::string_view text);

}  // namespace shardwright
