/// Errors on their way to another process of this program.
#pragma once

#include "shardwright/base/byte_reader.h"
#include "shardwright/base/result.h"

namespace shardwright {

void append_error(Bytes& out, const Error& error);
/// `in.bad` when it is short or out of range.
Error take_error(ByteReader& in);

Bytes bytes_of_error(const Error& error);
/// What cannot be read becomes kInternal that says so.
Error error_from_bytes(View bytes);

}  // namespace shardwright
