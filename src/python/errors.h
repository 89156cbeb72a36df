/// Errors of the library as Python exceptions: shardwright.Error and one class per row of the error table.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "shardwright/base/result.h"

namespace shardwright::python {

/// Thrown by bindings; becomes the Python exception of its code.
struct Raised : std::exception {
  explicit Raised(Error value) : error(std::move(value)) {}
  Error error;
};

/// The exception object, not raised. REQUIRES: the GIL.
nanobind::object exception_of(const Error& error);

template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw Raised(std::move(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

void bind_errors(nanobind::module_& module);

}  // namespace shardwright::python
