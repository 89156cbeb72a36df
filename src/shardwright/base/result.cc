#include "shardwright/base/result.h"

#include <cstring>

#include "shardwright/base/error_table.h"

namespace shardwright {

Error&& Error::at_path(std::string value) && {
  path = std::move(value);
  return std::move(*this);
}
Error&& Error::at_tensor(std::string value) && {
  tensor = std::move(value);
  return std::move(*this);
}
Error&& Error::at_offset(uint64_t value) && {
  offset = value;
  return std::move(*this);
}
Error&& Error::with_found(std::string value) && {
  found = std::move(value);
  return std::move(*this);
}
Error&& Error::with_expected(std::string value) && {
  expected = std::move(value);
  return std::move(*this);
}
Error&& Error::with_hint(std::string value) && {
  hint = std::move(value);
  return std::move(*this);
}
Error&& Error::within(std::string value) && {
  context.push_back(std::move(value));
  return std::move(*this);
}

std::string Error::text() const {
  std::string out = path;
  if (offset != kNoOffset) out += (out.empty() ? "offset " : "@") + std::to_string(offset);
  if (!out.empty()) out += ": ";
  if (!tensor.empty()) out += "tensor '" + tensor + "': ";
  out += message;
  if (!found.empty() || !expected.empty()) {
    out += " (";
    if (!found.empty()) out += "found " + found;
    if (!found.empty() && !expected.empty()) out += ", ";
    if (!expected.empty()) out += "expected " + expected;
    out += ")";
  }
  return out;
}

Error errno_error(int error_number, std::string_view action, std::string path) {
  return fail(code_of_errno(error_number), std::string(action) + ": " + std::strerror(error_number))
      .at_path(std::move(path));
}

}  // namespace shardwright
