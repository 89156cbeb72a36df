/// Regular expressions in Python's syntax, as far as PCRE2 reads them alike; what it would silently read otherwise is refused.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright {

/// Compiled, with limits on matching work. Thread-safe to use.
class Regex {
 public:
  /// Errors: kInvalidArgument with the position for syntax, and for what Python reads differently: `{,n}`, `\Z`, POSIX classes, `(?a)`.
  static Result<Regex> compile(std::string_view pattern);
  /// Python's re.search and re.fullmatch. Errors: kResourceExhausted when the limits are reached.
  Result<bool> search(std::string_view text) const;
  Result<bool> fullmatch(std::string_view text) const;
  /// Python's re.sub: every match; the replacement knows \1 to \99, \g<1>, \g<name> and \\.
  Result<std::string> substitute(std::string_view replacement, std::string_view text) const;
  const std::string& pattern() const;
  /// A text that is part of every text in which the pattern is found; may be empty. For those who look for many patterns in many texts.
  const std::string& literal() const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace shardwright
