/// Errors as values. No exception crosses a function of this library; std::bad_alloc is not handled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace shardwright {

/// What kind of failure it is: decides exit code, Python exception and whether a retry may help (see error_table.h).
/// Order is the table's row order; the numbers are not on disk.
enum class Code : uint8_t {
  kInvalidArgument,    ///< the caller asked for something that cannot be meant
  kNotFound,           ///< a file, tensor or step that was asked for is not there
  kAlreadyExists,      ///< the target is there and may not be replaced
  kCorrupt,            ///< bytes contradict their format, their index or their checksum
  kUnsupported,        ///< valid, but not something this build can do
  kIo,                 ///< the operating system said no for another reason (EIO, ...)
  kUnavailable,        ///< temporary; a retry may help
  kPermission,         ///< not allowed
  kResourceExhausted,  ///< memory budget, disk space, inodes or open files
  kAborted,            ///< cancelled, or the source changed while it was read
  kInternal,           ///< a bug of ours
};

inline constexpr uint64_t kNoOffset = ~0ull;

/// One failure. `message` says what, found, expected and the next step, in one line without the place; the place is in
/// fields of its own, so that programs need not parse text.
struct Error {
  Code code = Code::kInternal;
  std::string message;
  std::string path{};                  ///< file or key; empty when none
  std::string tensor{};                ///< tensor name; empty when none
  uint64_t offset = kNoOffset;         ///< byte offset in `path`; kNoOffset when none
  std::string found{};                 ///< what was there; empty when it does not apply
  std::string expected{};              ///< what should have been there
  std::string hint{};                  ///< next step for the user; empty when none is known
  std::vector<std::string> context{};  ///< outermost last: "while copying 'a' to 'b'"

  Error&& at_path(std::string value) &&;
  Error&& at_tensor(std::string value) &&;
  Error&& at_offset(uint64_t value) &&;
  Error&& with_found(std::string value) &&;
  Error&& with_expected(std::string value) &&;
  Error&& with_hint(std::string value) &&;
  Error&& within(std::string value) &&;  ///< adds a context line

  /// One line for people: "path@offset: tensor 'x': message (found F, expected E)"; without hint and context.
  std::string text() const;
};

/// A value or an Error. [[nodiscard]] because tl::expected itself is not.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(Error error) : tl::expected<T, Error>(tl::unexpected<Error>(std::move(error))) {}
  bool ok() const { return this->has_value(); }
};

using Status = Result<void>;

/// Shorthand for the common error: `return fail(Code::kCorrupt, "header is not JSON").at_path(key);`
inline Error fail(Code code, std::string message) {
  Error error;
  error.code = code;
  error.message = std::move(message);
  return error;
}

/// errno to Error: ENOSPC, EDQUOT -> kResourceExhausted, EACCES, EPERM, EROFS -> kPermission, ENOENT -> kNotFound,
/// EEXIST -> kAlreadyExists, else kIo. `action` is a verb phrase: "cannot open".
Error errno_error(int error_number, std::string_view action, std::string path);

}  // namespace shardwright

#define SHARDWRIGHT_CONCAT_(a, b) a##b
#define SHARDWRIGHT_CONCAT(a, b) SHARDWRIGHT_CONCAT_(a, b)

/// Returns the error of a Status or Result, if it has one.
#define SHARDWRIGHT_TRY(expression)                                             \
  do {                                                                          \
    auto&& shardwright_status = (expression);                                   \
    if (!shardwright_status.ok()) return std::move(shardwright_status.error()); \
  } while (false)

/// `SHARDWRIGHT_ASSIGN(auto value, expression)`: unwraps a Result or returns its error.
#define SHARDWRIGHT_ASSIGN(target, expression) \
  SHARDWRIGHT_ASSIGN_(SHARDWRIGHT_CONCAT(shardwright_result_, __LINE__), target, expression)
#define SHARDWRIGHT_ASSIGN_(result, target, expression) \
  auto result = (expression);                           \
  if (!result.ok()) return std::move(result.error());   \
  target = std::move(*result)
