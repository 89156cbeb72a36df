/// What users and index files write: sizes, globs, paths, names. First line and the rest are the two arguments.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz_support.h"
#include "shardwright/base/json.h"
#include "shardwright/base/text.h"

namespace {

using namespace shardwright;

/// The definition of glob matching, by recursion over the pattern; only for short inputs.
bool matches_by_definition(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    for (size_t skip = 0; skip <= name.size(); ++skip) {
      if (matches_by_definition(pattern.substr(1), name.substr(skip))) return true;
    }
    return false;
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         matches_by_definition(pattern.substr(1), name.substr(1));
}

void check_paths(std::string_view text) {
  if (!is_safe_relative_path(text)) return;
  FUZZ_CLAIM(!text.empty() && text[0] != '/' && text.find('\\') == text.npos && text.find('\0') == text.npos);
  FUZZ_CLAIM(("/" + std::string(text) + "/").find("/../") == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  std::string_view text = text_of(fuzz_view(data, size));
  const size_t newline = text.find('\n');
  std::string_view first = text.substr(0, newline);
  std::string_view rest = newline == text.npos ? std::string_view{} : text.substr(newline + 1);
  auto bytes = parse_size(first);
  if (bytes.ok()) FUZZ_CLAIM(*bytes <= uint64_t{1} << 63);
  (void)format_bytes(bytes.ok() ? *bytes : size);
  const bool matched = glob_match(first, rest);
  // `?` is one byte or one character where the name is not ASCII: only ASCII is compared.
  const bool ascii = text.find_first_of("[\\") == text.npos &&
                     std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (first.size() <= 8 && rest.size() <= 12 && ascii) FUZZ_CLAIM(matched == matches_by_definition(first, rest));
  check_paths(first);
  auto quoted = parse_json(json_quote(text));
  FUZZ_CLAIM(quoted.ok() && quoted->is_string());
  if (is_utf8(text)) FUZZ_CLAIM(quoted->get<std::string>() == text);
  const std::vector<std::string> names{std::string(rest), std::string(first), "model.embed_tokens.weight"};
  FUZZ_CLAIM(nearest_names(first, names).size() <= 3);
  (void)describe_magic(text);
  return 0;
}
