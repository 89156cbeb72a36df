// Globs and near names (text.h).
#include <algorithm>
#include <array>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

/// A code point, or a single byte where there is no valid UTF-8: `?` is one character, whatever its bytes.
struct Character {
  uint32_t code;
  size_t bytes;
};

Character character_at(std::string_view text, size_t at) {
  auto first = static_cast<unsigned char>(text[at]);
  size_t length = first < 0xc2 || first > 0xf4 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length == 1) return {first, 1};
  if (at + length > text.size() || !is_utf8(text.substr(at, length))) return {first, 1};
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
  return {code, length};
}

/// Where the set that starts at pattern[at] == '[' ends: index of its ']', npos when it is not closed and so a plain '['.
size_t set_end(std::string_view pattern, size_t at, size_t last_close) {
  size_t first = at + 1;
  if (first < pattern.size() && pattern[first] == '!') ++first;
  // A ']' in the first place is a member. last_close keeps patterns of many '[' linear.
  if (last_close == std::string_view::npos || first + 1 > last_close) return std::string_view::npos;
  return pattern.find(']', first + 1);
}

/// Whether `set`, the text between the brackets, has `code`.
bool set_has(std::string_view set, uint32_t code) {
  bool negated = set.starts_with('!');
  if (negated) set.remove_prefix(1);
  bool found = false;
  for (size_t at = 0; at < set.size() && !found;) {
    Character low = character_at(set, at);
    at += low.bytes;
    Character high = low;
    if (at + 1 < set.size() && set[at] == '-') {
      high = character_at(set, at + 1);
      at += 1 + high.bytes;
    }
    found = low.code <= code && code <= high.code;
  }
  return found != negated;
}

/// Bytes of pattern that match the character at `at`; 0 when they do not. REQUIRES: pattern[at] is not '*'.
size_t match_one(std::string_view pattern, size_t at, size_t last_close, Character character) {
  if (pattern[at] == '?') return 1;
  if (pattern[at] == '[') {
    size_t end = set_end(pattern, at, last_close);
    if (end != std::string_view::npos)
      return set_has(pattern.substr(at + 1, end - at - 1), character.code) ? end - at + 1 : 0;
  }
  Character wanted = character_at(pattern, at);
  return wanted.code == character.code && wanted.bytes == character.bytes ? wanted.bytes : 0;
}

/// Levenshtein distance if it is at most `limit`, else limit + 1. Only cells within `limit` of the diagonal are looked at.
/// rows: scratch of at least b.size() + 1 entries. REQUIRES: sizes differ by at most limit.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit, std::vector<size_t>& row) {
  size_t most = limit + 1;
  for (size_t j = 0; j <= b.size(); ++j) row[j] = std::min(j, most);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t from = i > limit ? i - limit : 1, to = std::min(b.size(), i + limit);
    size_t diagonal = row[from - 1], best = most;
    row[from - 1] = from == 1 ? std::min(i, most) : most;
    if (from == 1) best = row[0];
    for (size_t j = from; j <= to; ++j) {
      // What lies above the band's end was never computed for row i-1; it is past the limit.
      size_t above = j == i + limit ? most : row[j];
      size_t here = std::min({diagonal + (a[i - 1] != b[j - 1]), above + 1, row[j - 1] + 1, most});
      diagonal = row[j];
      row[j] = here;
      best = std::min(best, here);
    }
    if (best > limit) return most;
  }
  return row[b.size()];
}

using Histogram = std::array<int32_t, 256>;

Histogram histogram_of(std::string_view text) {
  Histogram counts{};
  for (char c : text) ++counts[static_cast<unsigned char>(c)];
  return counts;
}

/// The distance is at least the number of characters that one has and the other has not.
size_t distance_at_least(Histogram counts, std::string_view name) {
  for (char c : name) --counts[static_cast<unsigned char>(c)];
  int64_t more = 0, less = 0;
  for (int32_t count : counts) (count > 0 ? more : less) += count;
  return static_cast<size_t>(std::max(more, -less));
}

/// Removes what both start and end with: it adds nothing to the distance.
void drop_common_ends(std::string_view& a, std::string_view& b) {
  size_t common = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  a.remove_prefix(common);
  b.remove_prefix(common);
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) {
  constexpr size_t kNone = std::string_view::npos;
  size_t last_close = pattern.rfind(']');
  size_t p = 0, n = 0;
  size_t star = kNone, star_name = 0;  // after the last '*', and the name's place it was tried at
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      star_name = n;
      continue;
    }
    Character character = character_at(name, n);
    size_t used = p < pattern.size() ? match_one(pattern, p, last_close, character) : 0;
    if (used > 0) {
      p += used;
      n += character.bytes;
    } else if (star != kNone) {
      // Only the last star need ever give way: an earlier one that took more would leave less for the rest.
      p = star;
      star_name += character_at(name, star_name).bytes;
      n = star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> nearest_names(std::string_view wanted, std::span<const std::string> names, size_t most) {
  // A hint is not worth more than some tenths of a second, whatever the file says its names are.
  uint64_t cells_left = 100'000'000;
  size_t limit = wanted.size() / 3;
  struct Near {
    size_t distance, index;
  };
  std::vector<Near> found;  // nearest first, at most `most`
  std::vector<size_t> row;
  const Histogram wanted_counts = histogram_of(wanted);
  for (size_t i = 0; i < names.size() && most > 0; ++i) {
    std::string_view a = wanted, b = names[i];
    if (b.size() > a.size() + limit || a.size() > b.size() + limit) continue;
    if (distance_at_least(wanted_counts, b) > limit) continue;
    drop_common_ends(a, b);
    uint64_t cells = (2 * limit + 1) * (a.size() + 1) + 256;
    if (cells > cells_left) break;
    cells_left -= cells;
    row.resize(std::max(row.size(), b.size() + 1));
    size_t distance = edit_distance(a, b, limit, row);
    if (distance > limit) continue;
    auto after = std::upper_bound(found.begin(), found.end(), distance,
                                  [](size_t value, const Near& near) { return value < near.distance; });
    found.insert(after, {distance, i});
    if (found.size() > most) found.pop_back();
    // From here on only a nearer one counts; ties keep the order of `names`.
    if (found.size() == most) {
      if (found.back().distance == 0) break;
      limit = std::min(limit, found.back().distance - 1);
    }
  }
  std::vector<std::string> out;
  for (const Near& near : found) out.push_back(names[near.index]);
  return out;
}

}  // namespace shardwright
