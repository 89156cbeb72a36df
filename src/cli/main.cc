/// The program: parses, runs one verb, prints what went wrong, and ends with the exit code of the table.
#include <clocale>
#include <csignal>
#include <string>
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
    code = parsed->command->run(invocation);
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
  std::setlocale(LC_CTYPE, "");
  return shardwright::cli::run(std::vector<std::string>(argv + (argc > 0), argv + argc));
}
