#include "cli/slice.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace shardwright::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t end = std::min(text.find(separator), text.size());
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

Error bad(std::string_view part) {
  return fail(Code::kInvalidArgument, "'" + std::string(part) + "' is no index or slice")
      .with_hint("like 3, -1, 0:4, ::2 or ... for one dimension, commas between");
}

/// "" is nullopt. Numbers are kept within +-2^62, far outside any tensor, so that sums cannot overflow.
Result<std::optional<int64_t>> number(std::string_view text, std::string_view part) {
  if (text.empty()) return std::optional<int64_t>();
  if (text.front() == '+') text.remove_prefix(1);
  int64_t value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return bad(part);
  constexpr int64_t kFar = int64_t{1} << 62;
  return std::optional<int64_t>(std::clamp(value, -kFar, kFar));
}

/// Python's slice.indices(extent).
Result<Range> slice_range(std::string_view part, int64_t extent) {
  std::vector<std::string_view> fields = split(part, ':');
  if (fields.size() > 3) return bad(part);
  std::optional<int64_t> numbers[3];
  for (size_t i = 0; i < fields.size(); ++i) {
    SHARDWRIGHT_ASSIGN(numbers[i], number(fields[i], part));
  }
  int64_t step = numbers[2].value_or(1);
  if (step == 0) return fail(Code::kInvalidArgument, "the step of '" + std::string(part) + "' is zero");
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
  auto clipped = [&](std::optional<int64_t> bound, int64_t missing) {
    if (!bound) return missing;
    return std::clamp(*bound < 0 ? *bound + extent : *bound, low, high);
  };
  int64_t start = clipped(numbers[0], step > 0 ? low : high), stop = clipped(numbers[1], step > 0 ? high : low);
  int64_t distance = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
  return Range{start, step, distance <= 0 ? 0 : (distance - 1) / stride + 1};
}

Result<Range> one_range(std::string_view part, int64_t extent, size_t dimension) {
  if (part.find(':') != part.npos) return slice_range(part, extent);
  SHARDWRIGHT_ASSIGN(std::optional<int64_t> index, number(part, part));
  if (!index) return bad(part);
  int64_t at = *index < 0 ? *index + extent : *index;
  if (at < 0 || at >= extent) {
    return fail(Code::kInvalidArgument,
                "index " + std::string(part) + " is outside of dimension " + std::to_string(dimension))
        .with_expected(extent == 0 ? "none: it has no elements" : "0 to " + std::to_string(extent - 1));
  }
  return Range{at, 1, 1, true};
}

}  // namespace

Result<std::vector<Range>> parse_slice(std::string_view text, std::span<const int64_t> shape) {
  std::vector<std::string_view> parts;
  if (!trimmed(text).empty()) parts = split(text, ',');
  if (parts.size() > 1 && parts.back().empty()) parts.pop_back();  // "0," is Python's one-element tuple
  auto dots = std::find(parts.begin(), parts.end(), "...");
  size_t given = parts.size() - (dots != parts.end());
  if (given > shape.size()) {
    return fail(Code::kInvalidArgument, "the slice has more dimensions than the tensor")
        .with_found(std::to_string(given))
        .with_expected("at most " + std::to_string(shape.size()));
  }
  if (dots != parts.end()) dots = parts.erase(dots);
  parts.insert(dots, shape.size() - given, ":");
  std::vector<Range> ranges;
  for (size_t d = 0; d < shape.size(); ++d) {
    SHARDWRIGHT_ASSIGN(Range range, one_range(parts[d], shape[d], d));
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace shardwright::cli
