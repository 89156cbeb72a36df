/// Text between the library and Python: names in files are bytes, mostly UTF-8.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace shardwright::python {

/// str of UTF-8 text; bytes that are none become surrogates, as os.fsdecode makes them.
inline nanobind::str to_str(std::string_view text) {
  return nanobind::steal<nanobind::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

/// A list of str, of anything that is walked text by text.
template <class Range>
nanobind::list strs_of(const Range& range) {
  nanobind::list out;
  for (const auto& text : range) out.append(to_str(text));
  return out;
}

/// The way back. Throws what Python raised.
inline std::string from_str(const nanobind::handle& text) {
  auto bytes = nanobind::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid()) throw nanobind::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr()))};
}

}  // namespace shardwright::python
