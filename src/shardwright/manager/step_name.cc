#include "shardwright/manager/step_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "shardwright/base/text.h"

namespace shardwright {

Status StepNames::check() const {
  bool plain = prefix.empty() || (is_safe_relative_path(prefix) && prefix.find('/') == prefix.npos && prefix[0] != '.');
  if (!plain)
    return fail(Code::kInvalidArgument, "the prefix of steps is no plain name").with_found("'" + prefix + "'");
  constexpr int kMostDigits = 20;  // of 64 bits
  if (digits < 0 || digits > kMostDigits)
    return fail(Code::kInvalidArgument, "steps cannot be padded to so many digits").with_found(std::to_string(digits));
  return {};
}

std::string StepNames::name_of(uint64_t step) const {
  return fmt::format("{}{}{:0{}d}", prefix, prefix.empty() ? "" : "_", step, std::max(digits, 1));
}

std::optional<uint64_t> StepNames::step_of(std::string_view name) const {
  if (!prefix.empty()) {
    if (!name.starts_with(prefix) || name.size() <= prefix.size() || name[prefix.size()] != '_') return std::nullopt;
    name.remove_prefix(prefix.size() + 1);
  }
  uint64_t step = 0;
  auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (problem != std::errc() || end != name.data() + name.size()) return std::nullopt;
  // "007" and "7" are one number: only one of them is a step.
  std::string canonical = StepNames{"", digits}.name_of(step);
  if (name != canonical) return std::nullopt;
  return step;
}

}  // namespace shardwright
