/// Errors on their way to other ranks.
#pragma once

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

Bytes bytes_of_error(const Error& error);
/// What cannot be read becomes kInternal that says so.
Error error_from_bytes(View bytes);

}  // namespace shardwright
