/// Where answers and messages go: results to stdout, everything else to stderr; text for people or JSON.
#pragma once

#include <string>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright::cli {

enum class When : uint8_t { kAuto, kAlways, kNever };

/// Resolved once, before the verb runs.
struct OutputOptions {
  bool json = false, quiet = false;
  int verbose = 0;
  When color = When::kAuto, progress = When::kAuto;
};

enum class Style : uint8_t { kPlain, kBold, kDim, kRed, kYellow, kGreen };

/// Buffered stdout and unbuffered stderr of the process. A reader that goes away (`| head`) is no error: broken() turns true, further
/// output is dropped, and main() ends as the shell expects. Used by one thread.
class Output {
 public:
  explicit Output(const OutputOptions& options);

  const OutputOptions& options() const { return options_; }
  bool json() const { return options_.json; }
  bool quiet() const { return options_.quiet; }
  bool verbose() const { return options_.verbose > 0; }
  bool utf8() const { return utf8_; }
  /// Columns of the terminal on stdout; 0 when it is none: then nothing is cut.
  size_t width() const { return width_; }

  void write(std::string_view text);
  void line(std::string_view text);
  /// To write into directly, followed by flush_if_full().
  std::string& buffer() { return buffer_; }
  void flush_if_full() {
    if (buffer_.size() >= kFlushBytes) flush();
  }
  void flush();
  bool broken() const { return broken_; }
  /// Flushes; the first write error of stdout other than a closed pipe.
  Status close();

  /// "shardwright: error: ..." with context and hint; with --json one object {type:"error", ...}. exit_code is part of the object.
  void error(const Error& error, int exit_code);
  /// "shardwright: warning: ..."; dropped by --quiet. With --json: {type:"warning", message}. Control characters are shown, not sent.
  void warning(std::string_view message);
  void note(std::string_view message);

  /// Text in a style when stdout (or stderr) takes colour, else the text itself.
  std::string styled(std::string_view text, Style style) const { return paint(text, style, color_stdout_); }

 private:
  static constexpr size_t kFlushBytes = size_t{64} * 1024;
  std::string paint(std::string_view text, Style style, bool color) const;
  void message(std::string_view kind, Style style, std::string_view text);
  std::string headed(std::string_view kind, Style style, std::string_view text) const;
  OutputOptions options_;
  bool color_stdout_ = false, color_stderr_ = false, utf8_ = false, broken_ = false;
  int write_errno_ = 0;
  size_t width_ = 0;
  std::string buffer_;
};

}  // namespace shardwright::cli
