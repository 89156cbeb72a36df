/// The program: parses, runs one verb, prints what went wrong, and ends with the exit code of the table.
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/help.h"
#include "cli/interrupts.h"
#include "cli/parse.h"
#include "shardwright/base/error_table.h"

namespace shardwright::cli {
namespace {

int exit_code_of(const Error& error) {
  return error.code == Code::kAborted && interrupted() ? kExitInterrupted : error_row(error.code).exit_code;
}

Error explained(Error error) {
  if (error.code == Code::kAborted && interrupted()) {
    error.message = "interrupted; nothing unfinished is left";
    error.hint.clear();
  }
  return error;
}

constexpr std::string_view kNoMemory = "the system has no more memory for this process";

Error out_of_memory() {
  return fail(Code::kResourceExhausted, std::string(kNoMemory))
      .with_hint("look at `ulimit -v`, and at what else runs; what is unfinished is cleaned up by the next run");
}

/// Of a thread that has no one to tell: still an error and an exit code, no core dump.
[[noreturn]] void end_of_thread() {
  try {
    if (auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    for (std::string_view text : {std::string_view("shardwright: error: "), kNoMemory, std::string_view("\n")})
      (void)!write(STDERR_FILENO, text.data(), text.size());
    _exit(error_row(Code::kResourceExhausted).exit_code);
  } catch (...) {
  }
  std::abort();
}

int run(const std::vector<std::string>& words) {
  Result<Parsed> parsed = parse_command_line(words);
  Output output(parsed.ok() ? parsed->output : guess_output_options(words));
  Result<int> code = 0;
  if (!parsed.ok()) {
    code = std::move(parsed.error());
  } else if (parsed->version) {
    output.line("shardwright " SHARDWRIGHT_VERSION);
  } else if (parsed->help) {
    output.write(parsed->command ? command_help(*parsed->command) : general_help());
  } else {
    Invocation invocation{parsed->command, std::move(parsed->arguments), output, parsed->job};
    try {
      code = parsed->command->run(invocation);
    } catch (const std::bad_alloc&) {
      code = out_of_memory();
    }
  }
  Status closed = output.close();
  if (output.broken()) {  // `| head`: end as every other program in the pipe does
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  if (code.ok() && !closed.ok()) code = std::move(closed.error());
  if (code.ok()) return *code;
  int exit_code = exit_code_of(code.error());
  output.error(explained(std::move(code.error())), exit_code);
  return exit_code;
}

}  // namespace
}  // namespace shardwright::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::set_terminate(shardwright::cli::end_of_thread);
  std::setlocale(LC_CTYPE, "");
  return shardwright::cli::run(std::vector<std::string>(argv + (argc > 0), argv + argc));
}
