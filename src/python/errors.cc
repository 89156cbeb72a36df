#include "python/errors.h"

#include "python/text.h"
#include "shardwright/base/error_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwright::python {

nb::object exception_of(const Error& error) {
  nb::list context;
  for (const auto& line : error.context) context.append(to_str(line));
  nb::object offset = error.offset == kNoOffset ? nb::object(nb::none()) : nb::object(nb::int_(error.offset));
  return nb::module_::import_("shardwright.errors")
      .attr("_of_code")(to_str(error_row(error.code).name), to_str(error.message), to_str(error.path),
                        to_str(error.tensor), offset, to_str(error.found), to_str(error.expected), to_str(error.hint),
                        context);
}

void bind_errors(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Raised& raised) {
      auto exception = exception_of(raised.error);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    }
  });
  module.def(
      "error_table",
      [] {
        nb::list rows;
        for (const ErrorRow& row : error_table())
          rows.append(nb::make_tuple(to_str(row.name), to_str(row.exception), to_str(row.python_base), row.retryable,
                                     row.exit_code, to_str(row.meaning)));
        return rows;
      },
      nb::sig("def error_table() -> list[tuple[str, str, str, bool, int, str]]"),
      "Rows of the error table: code, exception, built-in base, whether a retry may help, exit code, meaning.");
  module.def(
      "code_of_errno", [](int number) { return to_str(error_row(code_of_errno(number)).name); }, "number"_a,
      nb::sig("def code_of_errno(number: int) -> str"), "Code of what the operating system reports.");
}

}  // namespace shardwright::python
