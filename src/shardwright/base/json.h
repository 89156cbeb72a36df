/// JSON from untrusted files: the DOM for small documents. Large ones (headers, indexes) have their own streaming parsers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright {

using Json = nlohmann::ordered_json;

/// Parses a whole document: UTF-8, depth at most 128, no duplicate keys in any object, nothing after the value but white space.
/// Integers keep 64 bits; larger ones become doubles, doubles too large are errors.
/// Errors: kCorrupt with the byte offset. Memory about 10 x text; callers cap the text.
Result<Json> parse_json(std::string_view text);

/// Compact text; invalid UTF-8 becomes U+FFFD.
std::string json_text(const Json& value, int indent = -1);

/// The member of an object; null when there is none, or `object` is no object.
const Json& json_member(const Json& object, std::string_view key);

}  // namespace shardwright
