#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "cli/json_output.h"
#include "cli/terminal.h"
#include "shardwright/base/error_table.h"

namespace shardwright::cli {
namespace {

constexpr int kOut = STDOUT_FILENO, kErr = STDERR_FILENO;

bool wants_color(When when, int fd) {
  if (when != When::kAuto) return when == When::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(fd) && terminal_can_redraw() && !(no_color && *no_color);
}

/// 0, or the errno of the write that failed.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

Output::Output(const OutputOptions& options)
    : options_(options),
      color_stdout_(wants_color(options.color, kOut)),
      color_stderr_(wants_color(options.color, kErr)),
      utf8_(locale_is_utf8()),
      width_(terminal_columns(kOut)) {}

void Output::write(std::string_view text) {
  buffer_ += text;
  flush_if_full();
}

void Output::line(std::string_view text) {
  buffer_ += text;
  buffer_ += '\n';
  flush_if_full();
}

void Output::flush() {
  if (!broken_ && write_errno_ == 0 && !buffer_.empty()) {
    int problem = write_all(kOut, buffer_);
    broken_ = problem == EPIPE;
    if (!broken_) write_errno_ = problem;
  }
  buffer_.clear();
}

Status Output::close() {
  flush();
  if (write_errno_ != 0) return errno_error(write_errno_, "cannot write", "standard output");
  return {};
}

std::string Output::paint(std::string_view text, Style style, bool color) const {
  constexpr std::string_view kCodes[] = {"", "1", "2", "1;31", "33", "32"};
  if (!color || style == Style::kPlain) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(style)], text);
}

void Output::message(std::string_view kind, Style style, std::string_view text) {
  flush();
  write_all(kErr,
            options_.json ? json_text(Json{{"type", kind}, {"message", text}}) + "\n" : headed(kind, style, text));
}

/// "shardwright: KIND: text", in lines of the terminal.
std::string Output::headed(std::string_view kind, Style style, std::string_view text) const {
  std::string head = fmt::format("{}:", kind);
  size_t used = std::string_view("shardwright: ").size() + head.size() + 1;
  return fmt::format("shardwright: {} {}\n", paint(head, style, color_stderr_),
                     wrapped(printable(text), used, terminal_columns(kErr), 2));
}

void Output::warning(std::string_view text) {
  if (!options_.quiet) message("warning", Style::kYellow, text);
}

void Output::note(std::string_view text) {
  if (!options_.quiet) message("note", Style::kDim, text);
}

void Output::error(const Error& error, int exit_code) {
  flush();
  if (options_.json) {
    Json object = {{"type", "error"},
                   {"code", error_row(error.code).name},
                   {"message", error.message},
                   {"path", json_or_null(error.path)},
                   {"tensor", json_or_null(error.tensor)},
                   {"offset", error.offset == kNoOffset ? Json() : Json(error.offset)},
                   {"found", json_or_null(error.found)},
                   {"expected", json_or_null(error.expected)},
                   {"context", error.context},
                   {"hint", json_or_null(error.hint)},
                   {"exit_code", exit_code}};
    write_all(kErr, json_text(object) + "\n");
    return;
  }
  std::string text = headed("error", Style::kRed, error.text());
  size_t columns = terminal_columns(kErr);
  for (const std::string& line : error.context) text += fmt::format("  {}\n", wrapped(printable(line), 2, columns, 4));
  if (!error.hint.empty()) text += fmt::format("Hint: {}\n", wrapped(printable(error.hint), 6, columns, 6));
  write_all(kErr, text);
}

}  // namespace shardwright::cli
