#include "shardwright/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "shardwright/base/bytes.h"

namespace shardwright {
namespace {

constexpr std::string_view kBase64Url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

/// Bytes per unit; 0 when it is none.
uint64_t unit_bytes(std::string_view unit) {
  std::string name = lower(unit);
  if (name.empty() || name == "b") return 1;
  constexpr std::string_view kPrefixes = "kmgt";
  size_t power = kPrefixes.find(name[0]);
  if (power == std::string_view::npos) return 0;
  uint64_t base = 0;
  if (name.substr(1) == "b") base = 1000;
  if (name.substr(1) == "ib") base = 1024;
  uint64_t bytes = base;
  for (size_t i = 0; i < power; ++i) bytes *= base;
  return bytes;
}

/// The unit that was meant by another spelling of it ("5G", "5Gi", "5 GBytes", "5BG"); "" when none shows.
std::string_view meant_unit(std::string_view unit) {
  std::string name = lower(unit);
  size_t power = name.find_first_of("kmgt");
  if (power == name.npos || name.find_first_not_of("kmgtbiyes ") != name.npos) return "";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kUnits = {
      {{"KB", "KiB"}, {"MB", "MiB"}, {"GB", "GiB"}, {"TB", "TiB"}}};
  const auto& [decimal, binary] = kUnits[std::string_view("kmgt").find(name[power])];
  return name.find('i') == name.npos ? decimal : binary;
}

Error bad_size(std::string_view text) {
  size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string number(text.substr(0, end)), unit(meant_unit(text.substr(end)));
  bool whole = end > 0 && is_digit(number.front()) && is_digit(number.back()) && std::ranges::count(number, '.') < 2;
  std::string hint = whole && !unit.empty() ? "did you mean '" + number + unit + "'?" : "";
  return fail(Code::kInvalidArgument, "not a size")
      .with_found("'" + std::string(text) + "'")
      .with_expected("a number of bytes, or one with a unit: 5GB (10^9), 5GiB (2^30)")
      .with_hint(hint);
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_digit(text[at])) ++at;
  std::string_view whole = text.substr(0, at), fraction;
  if (at < text.size() && text[at] == '.') {
    size_t start = ++at;
    while (at < text.size() && is_digit(text[at])) ++at;
    fraction = text.substr(start, at - start);
    if (fraction.empty()) return bad_size(text);
  }
  if (at < text.size() && text[at] == ' ' && at + 1 < text.size()) ++at;  // "4.2 MiB", as format_bytes prints it
  uint64_t unit = unit_bytes(text.substr(at));
  if (whole.empty() || unit == 0) return bad_size(text);

  std::optional<uint64_t> bytes = 0;
  for (char digit : whole) {
    if (bytes) bytes = checked_mul(*bytes, 10);
    if (bytes) bytes = checked_add(*bytes, static_cast<uint64_t>(digit - '0'));
  }
  if (bytes) bytes = checked_mul(*bytes, unit);
  // Horner from the last digit; dividing whole numbers each time gives the same floor as dividing once.
  uint64_t part = 0;
  for (size_t i = fraction.size(); i-- > 0;) part = (part + static_cast<uint64_t>(fraction[i] - '0') * unit) / 10;
  if (bytes) bytes = checked_add(*bytes, part);
  if (!bytes || *bytes > 1ull << 63) return bad_size(text).with_expected("at most 2^63 bytes").with_hint("");
  return *bytes;
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < KiB) return fmt::format("{} B", bytes);
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.6 KiB would print as "1024 KiB".
  for (; value >= 1023.5 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::string digits = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  return digits + " " + kUnits[unit];
}

std::string format_count(uint64_t count) {
  std::string digits = std::to_string(count), out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string format_seconds(double seconds) {
  if (!(seconds > 0)) seconds = 0;
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e15) seconds = 1e15;
  auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
}

bool is_safe_relative_path(std::string_view path) {
  if (path.empty()) return false;
  for (char c : path)
    if (c == '\0' || c == '\\') return false;
  bool drive = path.size() >= 2 && path[1] == ':' && lower(path[0]) >= 'a' && lower(path[0]) <= 'z';
  if (drive) return false;
  for (size_t start = 0; start <= path.size();) {
    size_t end = std::min(path.find('/', start), path.size());
    std::string_view part = path.substr(start, end - start);
    // Empty, "." and ".."; and those that Windows, which drops trailing dots and blanks, takes for them.
    if (part.find_first_not_of(". ") == std::string_view::npos) return false;
    start = end + 1;
  }
  return true;
}

std::string describe_magic(std::string_view first_bytes) {
  using namespace std::string_view_literals;
  struct Magic {
    std::string_view prefix, what;
  };
  constexpr std::array kMagics = {
      Magic{"version https://git-lfs"sv, "a Git LFS pointer, not the file itself"sv},
      Magic{"PK\3\4"sv, "a zip archive"sv},
      Magic{"PK\5\6"sv, "an empty zip archive"sv},
      Magic{"GGUF"sv, "a GGUF file"sv},
      Magic{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"sv},
      Magic{"\x93NUMPY"sv, "a NumPy array file"sv},
      Magic{"\x1f\x8b"sv, "a gzip file"sv},
      Magic{"PYTORCH1"sv, "a preview archive of PyTorch, from before its zip form"sv},
      Magic{"\x28\xb5\x2f\xfd"sv, "a zstd file"sv},
  };
  for (const Magic& magic : kMagics)
    if (first_bytes.starts_with(magic.prefix)) return std::string(magic.what);
  bool pickle = first_bytes.size() >= 2 && first_bytes[0] == '\x80' && first_bytes[1] >= 2 && first_bytes[1] <= 5;
  if (pickle) return "a Python pickle (torch .bin)";
  if (first_bytes.empty()) return "";
  if (first_bytes.find_first_not_of('\0') == std::string_view::npos) return "all zero bytes";
  if (first_bytes.size() > 9 && first_bytes.substr(8, 2) == "{\"" &&
      load_le<uint64_t>(view_of(first_bytes)) < 1ull << 40)
    return "a safetensors file";

  std::string_view text = first_bytes;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::string start = lower(text.substr(0, 16));
  if (start.starts_with("<!doctype") || start.starts_with("<html")) return "an HTML page";
  if (start.starts_with("<?xml")) return "an XML document";
  if (start.starts_with("{") || start.starts_with("[")) {
    std::string_view inside = text.substr(1);
    inside.remove_prefix(std::min(inside.find_first_not_of(" \t\r\n"), inside.size()));
    if (start[0] == '[' || inside.starts_with('"') || inside.starts_with('}')) return "a JSON text";
  }
  return "";
}

std::string base64url(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    size_t held = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < held ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= held ? kBase64Url[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::optional<std::string> from_base64url(std::string_view text) {
  std::string out;
  uint32_t group = 0, bits = 0;
  size_t letters = std::min(text.size(), text.find('='));
  for (char c : text.substr(0, letters)) {
    size_t value = kBase64Url.find(c);
    if (value == kBase64Url.npos) return std::nullopt;
    group = group << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(group >> bits & 0xFF);
    group &= (1u << bits) - 1;
  }
  if (group != 0 || base64url(out) != text) return std::nullopt;
  return out;
}

}  // namespace shardwright
