/// What fits on a terminal, and what may be sent to it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardwright::cli {

bool is_terminal(int fd);
/// Columns of the terminal `fd`; 0 when it is none or does not say.
size_t terminal_columns(int fd);
/// False for TERM=dumb or none: no colour, no line that is redrawn.
bool terminal_can_redraw();
/// The locale's encoding is UTF-8.
bool locale_is_utf8();

/// The text with everything that could steer a terminal made visible: control characters, bidirectional overrides and invalid UTF-8
/// become \xNN or \u{NNNN}. Names come from files and are not to be trusted.
std::string printable(std::string_view text);
/// Columns taken by printable text: wide characters take two, combining ones none.
size_t display_width(std::string_view text);
/// Printable text broken at blanks into lines of at most `width` columns (0: not at all). used: columns that are taken on the first;
/// indent: of the others. A longer word has a line to itself.
std::string wrapped(std::string_view text, size_t used, size_t width, size_t indent);
/// The text, or its start and end around an ellipsis, in at most `width` columns. REQUIRES: width >= 3.
std::string cut_middle(std::string_view text, size_t width, bool utf8);

}  // namespace shardwright::cli
