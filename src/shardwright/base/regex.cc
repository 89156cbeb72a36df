#include "shardwright/base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <vector>

namespace shardwright {

struct Regex::Code {
  std::string pattern;
  std::string literal;  ///< a text without it does not match; empty: none is known
  pcre2_code* compiled = nullptr;
  pcre2_code* whole = nullptr;  ///< anchored at both ends: as options of a match these would keep the JIT away
  pcre2_match_context* limits = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  ~Code() {
    pcre2_code_free(compiled);
    pcre2_code_free(whole);
    pcre2_match_context_free(limits);
  }
};

namespace {

constexpr uint32_t kMatchLimit = 1'000'000, kDepthLimit = 10'000;

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;

std::string named(std::string_view pattern) {
  return "regular expression '" + std::string(pattern.substr(0, 200)) + "'";
}

Error refuse(std::string_view pattern, size_t at, const std::string& what) {
  return fail(Code::kInvalidArgument, named(pattern) + ": " + what + " at position " + std::to_string(at));
}

/// What PCRE2 and Python read differently without an error.
Status check_dialect(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    auto rest = pattern.substr(i);
    if (rest[0] == '\\') {
      if (rest.size() > 1 && rest[1] == 'Z')
        return refuse(pattern, i, "\\Z means another place than in Python; write (?!\\n)$ instead");
      ++i;
    } else if (in_class) {
      if (rest.starts_with("[:")) return refuse(pattern, i, "Python has no POSIX classes");
      in_class = rest[0] != ']';
    } else if (rest[0] == '[') {
      in_class = true;
      if (rest.starts_with("[]") || rest.starts_with("[^]")) i += rest[1] == '^' ? 2 : 1;
      if (rest.starts_with("[[:")) return refuse(pattern, i, "Python has no POSIX classes");
    } else if (rest.starts_with("{,")) {
      return refuse(pattern, i, "{,n} is read as text; write {0,n}");
    } else if (rest.starts_with("(?a)")) {
      return refuse(pattern, i, "(?a) is not supported");
    }
  }
  return {};
}

/// Position after the class that begins at `at`; npos when it does not end.
size_t after_class(std::string_view pattern, size_t at) {
  size_t i = at + (pattern.substr(at).starts_with("[^") ? 2 : 1);
  for (bool first = true; i < pattern.size(); ++i, first = false) {
    if (pattern[i] == '\\')
      ++i;
    else if (pattern[i] == ']' && !first)
      return i + 1;
  }
  return pattern.npos;
}

/// One item of a pattern, as far as required_literal() knows them.
struct Item {
  enum Kind {
    kLetter,
    kOther,
    kMayBeLeftOut,
    kOpen,
    kClose,
    kBar,
    kUnknown
  } kind;  ///< kMayBeLeftOut: says so of the item before
  size_t end;
  char letter = 0;
};

Item escape_at(std::string_view pattern, size_t at) {
  char escaped = at + 1 < pattern.size() ? pattern[at + 1] : 'Q';
  if (std::isalnum(static_cast<unsigned char>(escaped)) != 0)
    return {std::string_view("dDwWsSbBA").find(escaped) == pattern.npos ? Item::kUnknown : Item::kOther, at + 2};
  bool plain = escaped >= ' ' && escaped <= '~';
  return {plain ? Item::kLetter : Item::kOther, at + 2, escaped};
}

Item repeat_at(std::string_view pattern, size_t at) {
  size_t close = pattern.find_first_not_of("0123456789,", at + 1);
  bool repeats = close != pattern.npos && pattern[close] == '}';
  return {repeats ? Item::kMayBeLeftOut : Item::kUnknown, close + 1};
}

/// Groups that may change how the rest is read, and verbs of PCRE2, are not known.
Item group_at(std::string_view pattern, size_t at) {
  std::string_view rest = pattern.substr(at + 1, 2);
  bool odd =
      rest.starts_with('*') || (rest.starts_with('?') && std::string_view(":P=!<").find(rest.back()) == pattern.npos);
  return {odd ? Item::kUnknown : Item::kOpen, at + 1};
}

Item item_at(std::string_view pattern, size_t at) {
  switch (char c = pattern[at]) {
    case '\\': return escape_at(pattern, at);
    case '{': return repeat_at(pattern, at);
    case '(': return group_at(pattern, at);
    case '[': {
      size_t end = after_class(pattern, at);
      return {end == pattern.npos ? Item::kUnknown : Item::kOther, end};
    }
    case ')': return {Item::kClose, at + 1};
    case '|': return {Item::kBar, at + 1};
    case '*':
    case '?': return {Item::kMayBeLeftOut, at + 1};
    case '+':
    case '.':
    case '^':
    case '$': return {Item::kOther, at + 1};
    default: return {c >= ' ' && c <= '~' ? Item::kLetter : Item::kOther, at + 1, c};
  }
}

/// The longest text that every match contains, as far as it can be told without groups: characters that stand for themselves outside of
/// them, one after the other. Empty where none is found, or where the pattern has something rarer than it knows.
std::string required_literal(std::string_view pattern) {
  std::string longest, run;
  int depth = 0;
  for (size_t at = 0; at < pattern.size();) {
    Item item = item_at(pattern, at);
    at = item.end;
    if (item.kind == Item::kUnknown || (item.kind == Item::kBar && depth == 0)) return {};
    depth += item.kind == Item::kOpen ? 1 : item.kind == Item::kClose ? -1 : 0;
    if (item.kind == Item::kLetter && depth == 0) {
      run += item.letter;
      continue;
    }
    if (item.kind == Item::kMayBeLeftOut && !run.empty()) run.pop_back();
    if (run.size() > longest.size()) longest = run;
    run.clear();
  }
  return run.size() > longest.size() ? run : longest;
}

struct Found {
  bool matched = false;
  Match match;
};

/// True when `count`, what pcre2_match returned, is a match; 0 is one whose groups found no room.
Result<bool> is_match(int count, std::string_view pattern, std::string_view text) {
  if (count >= 0) return true;
  if (count == PCRE2_ERROR_NOMATCH) return false;
  bool limit = count == PCRE2_ERROR_MATCHLIMIT || count == PCRE2_ERROR_DEPTHLIMIT || count == PCRE2_ERROR_HEAPLIMIT;
  return fail(limit ? Code::kResourceExhausted : Code::kInvalidArgument,
              named(pattern) + (limit ? " takes too long on a name" : " cannot be applied"))
      .with_found(std::string(text.substr(0, 200)));
}

/// Whether it matches; no room is made for groups, which many names by many patterns would pay for.
Result<bool> matches(const pcre2_code* code, pcre2_match_context* limits, std::string_view pattern,
                     std::string_view text) {
  thread_local const Match kScratch(pcre2_match_data_create(1, nullptr));
  int count = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, kScratch.get(), limits);
  return is_match(count, pattern, text);
}

Result<Found> run(const pcre2_code* code, pcre2_match_context* limits, std::string_view pattern, std::string_view text,
                  size_t from, uint32_t options) {
  Found found;
  found.match.reset(pcre2_match_data_create_from_pattern(code, nullptr));
  int count = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options,
                          found.match.get(), limits);
  SHARDWRIGHT_ASSIGN(found.matched, is_match(count, pattern, text));
  return found;
}

std::string_view group(const Found& found, std::string_view text, uint32_t number) {
  if (number >= pcre2_get_ovector_count(found.match.get())) return {};
  const auto* ends = pcre2_get_ovector_pointer(found.match.get()) + size_t{2} * number;
  return ends[0] == PCRE2_UNSET ? std::string_view() : text.substr(ends[0], ends[1] - ends[0]);
}

/// One piece of a replacement: text, or the number of a group.
struct Piece {
  std::string text;
  int group = -1;
};

Result<std::vector<Piece>> parse_replacement(const pcre2_code* code, std::string_view replacement) {
  std::vector<Piece> pieces(1);
  auto bad = [&](const std::string& what) {
    return fail(Code::kInvalidArgument, "replacement '" + std::string(replacement) + "': " + what);
  };
  uint32_t groups = 0;
  pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &groups);
  for (size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '\\') {
      pieces.back().text += replacement[i];
      continue;
    }
    auto rest = replacement.substr(i + 1);
    std::string_view name;
    if (rest.starts_with("\\")) {
      pieces.back().text += '\\';
      ++i;
      continue;
    }
    if (rest.starts_with("g<") && rest.find('>') != rest.npos) {
      name = rest.substr(2, rest.find('>') - 2);
      i += name.size() + 3;
    } else {
      name = rest.substr(0, rest.find_first_not_of("0123456789") == rest.npos ? rest.size()
                                                                              : rest.find_first_not_of("0123456789"))
                 .substr(0, 2);
      i += name.size();
    }
    if (name.empty()) return bad("unknown escape");
    bool digits = name.find_first_not_of("0123456789") == name.npos;
    int number = digits
                     ? std::atoi(std::string(name).c_str())
                     : pcre2_substring_number_from_name(code, reinterpret_cast<PCRE2_SPTR>(std::string(name).c_str()));
    if (number < 0 || static_cast<uint32_t>(number) > groups) return bad("no group " + std::string(name));
    pieces.push_back({{}, number});
    pieces.push_back({});
  }
  return pieces;
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  SHARDWRIGHT_TRY(check_dialect(pattern));
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  code->literal = required_literal(pattern);
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
  int error = 0;
  size_t at = 0;
  auto text = reinterpret_cast<PCRE2_SPTR>(pattern.data());
  code->compiled = pcre2_compile(text, pattern.size(), kOptions, &error, &at, nullptr);
  code->whole =
      pcre2_compile(text, pattern.size(), kOptions | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, nullptr);
  if (code->compiled == nullptr || code->whole == nullptr) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return refuse(pattern, at, message);
  }
  // Without JIT they only run slower.
  pcre2_jit_compile(code->compiled, PCRE2_JIT_COMPLETE);
  pcre2_jit_compile(code->whole, PCRE2_JIT_COMPLETE);
  code->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code->limits, kMatchLimit);
  pcre2_set_depth_limit(code->limits, kDepthLimit);
  return Regex(std::move(code));
}

Result<bool> Regex::search(std::string_view text) const {
  return matches(code_->compiled, code_->limits, code_->pattern, text);
}

Result<bool> Regex::fullmatch(std::string_view text) const {
  return matches(code_->whole, code_->limits, code_->pattern, text);
}

Result<std::string> Regex::substitute(std::string_view replacement, std::string_view text) const {
  SHARDWRIGHT_ASSIGN(auto pieces, parse_replacement(code_->compiled, replacement));
  std::string out;
  size_t copied = 0, from = 0;
  uint32_t options = 0;
  while (from <= text.size()) {
    SHARDWRIGHT_ASSIGN(auto found, run(code_->compiled, code_->limits, code_->pattern, text, from, options));
    if (!found.matched) break;
    auto ends = pcre2_get_ovector_pointer(found.match.get());
    out += text.substr(copied, ends[0] - copied);
    for (const auto& piece : pieces)
      out += piece.group < 0 ? std::string_view(piece.text) : group(found, text, static_cast<uint32_t>(piece.group));
    copied = from = ends[1];
    // After an empty match the search goes on at the same place, for one that is not empty there.
    options = ends[0] == ends[1] ? PCRE2_NOTEMPTY_ATSTART : 0;
  }
  if (copied < text.size()) out += text.substr(copied);
  return out;
}

const std::string& Regex::pattern() const { return code_->pattern; }

const std::string& Regex::literal() const { return code_->literal; }

}  // namespace shardwright
