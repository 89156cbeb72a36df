/// The one table of error codes: name, exit code of the program, Python exception, whether a retry may help.
#pragma once

#include <span>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright {

struct ErrorRow {
  Code code;
  std::string_view name;         ///< lower_snake, in JSON output: "corrupt"
  int exit_code;                 ///< of the command line
  std::string_view exception;    ///< class under shardwright.Error: "CorruptError"
  std::string_view python_base;  ///< second base class in Python: "ValueError"; empty when none fits
  bool retryable;
  std::string_view meaning;  ///< one line for the manual
};

std::span<const ErrorRow> error_table();  ///< one row per Code, in order
const ErrorRow& error_row(Code code);
Code code_of_errno(int error_number);  ///< of what the system reports; kIo for what is nothing more

/// Exit codes of the program that are no error of the library.
inline constexpr int kExitOk = 0, kExitNo = 1, kExitUsage = 2, kExitInterrupted = 130;

}  // namespace shardwright
