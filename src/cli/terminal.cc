#include "cli/terminal.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace shardwright::cli {
namespace {

/// One character of UTF-8 at the start of `text`; length 0 when the bytes are not valid there.
struct Character {
  uint32_t code = 0;
  size_t length = 0;
};

Character next_character(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  size_t length = lead >= 0xF0 && lead < 0xF5   ? 4
                  : lead >= 0xE0 && lead < 0xF0 ? 3
                  : lead >= 0xC2 && lead < 0xE0 ? 2
                                                : 0;
  if (length == 0 || text.size() < length) return {};
  uint32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kSmallest[length] || code > 0x10FFFF || surrogate ? Character{} : Character{code, length};
}

/// Nearly every name: nothing to look at one by one.
bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; });
}

bool within(uint32_t code, std::initializer_list<std::pair<uint32_t, uint32_t>> ranges) {
  for (auto [first, last] : ranges) {
    if (code >= first && code <= last) return true;
  }
  return false;
}

/// Controls, line separators, and what turns the direction of text or is invisible.
bool steers(uint32_t code) {
  return within(code, {{0, 0x1F},
                       {0x7F, 0x9F},
                       {0xAD, 0xAD},
                       {0x61C, 0x61C},
                       {0x200B, 0x200F},
                       {0x2028, 0x202E},
                       {0x2060, 0x206F},
                       {0xFEFF, 0xFEFF},
                       {0xFFF9, 0xFFFB},
                       {0xE0000, 0xE007F}});
}

size_t columns_of(uint32_t code) {
  if (within(code, {{0x300, 0x36F}, {0x1AB0, 0x1AFF}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}})) return 0;
  bool wide = within(code, {{0x1100, 0x115F},
                            {0x2E80, 0x303E},
                            {0x3041, 0xA4CF},
                            {0xAC00, 0xD7A3},
                            {0xF900, 0xFAFF},
                            {0xFE30, 0xFE6F},
                            {0xFF00, 0xFF60},
                            {0xFFE0, 0xFFE6},
                            {0x1F300, 0x1FAFF},
                            {0x20000, 0x3FFFD}});
  return wide ? 2 : 1;
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

size_t terminal_columns(int fd) {
  winsize size{};
  if (!is_terminal(fd) || ::ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

bool terminal_can_redraw() {
  const char* term = std::getenv("TERM");
  return term && *term && std::string_view(term) != "dumb";
}

bool locale_is_utf8() { return std::string_view(::nl_langinfo(CODESET)) == "UTF-8"; }

std::string printable(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    Character character = next_character(text);
    if (character.length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    if (!steers(character.code)) {
      out += text.substr(0, character.length);
    } else if (character.code < 0x80) {
      out += fmt::format("\\x{:02x}", character.code);
    } else {
      out += fmt::format("\\u{{{:04x}}}", character.code);
    }
    text.remove_prefix(character.length);
  }
  return out;
}

size_t display_width(std::string_view text) {
  if (is_plain(text)) return text.size();
  size_t width = 0;
  while (!text.empty()) {
    Character character = next_character(text);
    width += character.length ? columns_of(character.code) : 1;
    text.remove_prefix(character.length ? character.length : 1);
  }
  return width;
}

std::string wrapped(std::string_view text, size_t used, size_t width, size_t indent) {
  if (width == 0 || used + display_width(text) <= width) return std::string(text);
  std::string out;
  bool first = true;  // of its line
  while (true) {
    size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    size_t columns = display_width(word);
    if (!first && used + 1 + columns > width) {
      out.append("\n").append(indent, ' ');
      used = indent;
      first = true;
    }
    if (!first) out += ' ';
    out += word;
    used += columns + (first ? 0 : 1);
    first = false;
    if (end == text.size()) return out;
    text.remove_prefix(end + 1);
  }
}

std::string cut_middle(std::string_view text, size_t width, bool utf8) {
  if (display_width(text) <= width) return std::string(text);
  std::string_view ellipsis = utf8 ? "\u2026" : "..";
  size_t room = width - display_width(ellipsis), head_room = room / 2;
  // The end of a tensor's name tells more than its start, so an odd column goes to it.
  size_t head = 0;
  for (size_t used = 0; head < text.size();) {
    Character character = next_character(text.substr(head));
    used += character.length ? columns_of(character.code) : 1;
    if (used > head_room) break;
    head += character.length ? character.length : 1;
  }
  size_t tail_room = room - display_width(text.substr(0, head)), tail = head;
  for (size_t left = display_width(text.substr(head)); left > tail_room;) {
    Character character = next_character(text.substr(tail));
    left -= character.length ? columns_of(character.code) : 1;
    tail += character.length ? character.length : 1;
  }
  return std::string(text.substr(0, head)) + std::string(ellipsis) + std::string(text.substr(tail));
}

}  // namespace shardwright::cli
