#include "shardwright/base/error_bytes.h"

namespace shardwright {

void append_error(Bytes& out, const Error& error) {
  append_le<uint8_t>(out, static_cast<uint8_t>(error.code));
  append_le<uint64_t>(out, error.offset);
  for (const auto* text : {&error.message, &error.path, &error.tensor, &error.found, &error.expected, &error.hint})
    append_sized(out, *text);
  append_le<uint64_t>(out, error.context.size());
  for (const auto& line : error.context) append_sized(out, line);
}

Error take_error(ByteReader& in) {
  Error out;
  auto code = in.number<uint8_t>();
  if (code > static_cast<uint8_t>(Code::kInternal)) in.bad = true;
  out.code = in.bad ? Code::kInternal : static_cast<Code>(code);
  out.offset = in.number<uint64_t>();
  for (auto* text : {&out.message, &out.path, &out.tensor, &out.found, &out.expected, &out.hint}) *text = in.text();
  for (auto lines = in.number<uint64_t>(); lines > 0 && !in.bad; --lines) out.context.emplace_back(in.text());
  return out;
}

Bytes bytes_of_error(const Error& error) {
  Bytes out;
  append_error(out, error);
  return out;
}

Error error_from_bytes(View bytes) {
  ByteReader in(bytes);
  Error error = take_error(in);
  if (in.bad || !in.at_end())
    return fail(Code::kInternal, "another rank failed, and what it said of it cannot be read");
  return error;
}

}  // namespace shardwright
