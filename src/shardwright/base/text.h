/// Text that people and programs read and write: sizes, globs, near names, JSON strings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"

namespace shardwright {

/// "5GB" = 5*10^9, "5GiB" = 5*2^30; K M G T in either; case of the letters does not matter, but a lone 'b' never means bits:
/// units are B, KB, KiB, ... A bare number is bytes. Fractions allowed ("1.5GB"), truncated to whole bytes.
/// Errors: kInvalidArgument for anything else, negative, or over 2^63.
Result<uint64_t> parse_size(std::string_view text);

/// "4.2 MiB": IEC units, three significant digits; whole bytes below 1 KiB ("17 B").
std::string format_bytes(uint64_t bytes);
/// "1,234,567".
std::string format_count(uint64_t count);
/// "1.24 s", "3m 12s", "2h 05m".
std::string format_seconds(double seconds);

/// Shell pattern over a whole tensor name: `*` (crosses '.' and '/'), `?`, `[a-z]`, `[!a]`; O(name * pattern), no recursion.
bool glob_match(std::string_view pattern, std::string_view name);

/// Up to `most` of `names` nearest to `wanted` by edit distance, nearest first; only those within a third of its length.
std::vector<std::string> nearest_names(std::string_view wanted, std::span<const std::string> names, size_t most = 3);

/// JSON string literal with quotes. Invalid UTF-8 becomes U+FFFD; other non-ASCII is kept as it is.
std::string json_quote(std::string_view text);
bool is_utf8(std::string_view text);

/// URL-safe and padded (RFC 4648, section 5).
std::string base64url(std::string_view bytes);
/// nullopt for other letters, a wrong length, and bits that no bytes have.
std::optional<std::string> from_base64url(std::string_view text);

/// True when `path` is relative, non-empty and cannot leave its directory on any system: no "..", no empty or "." component, no
/// drive, no backslash, no leading '/', no NUL. For names read from files.
bool is_safe_relative_path(std::string_view path);

/// What a file that is not the expected format really is, by its first bytes: "a Git LFS pointer, not the file itself",
/// "an HTML page", "a Python pickle (torch .bin)", "a zip archive", "a GGUF file", "all zero bytes"; "" when unknown.
std::string describe_magic(std::string_view first_bytes);

}  // namespace shardwright
