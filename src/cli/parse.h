/// Command line and environment to an Invocation's parts, by the command table.
#pragma once

#include <span>
#include <string>

#include "cli/invocation.h"

namespace shardwright::cli {

struct Parsed {
  const Command* command = nullptr;  ///< nullptr: no verb, help or version was asked for
  bool help = false, version = false;
  Arguments arguments;  ///< of the verb and the global options
  OutputOptions output;
  JobOptions job;
};

/// words: argv without the program's name. Options are taken before and after the verb, as `--name value`, `--name=value` or `-n`; what is
/// not given is taken from SHARDWRIGHT_NAME. Errors: kInvalidArgument (exit code 2) naming the word, with the nearest that would do.
Result<Parsed> parse_command_line(std::span<const std::string> words);

/// What can be told before parsing, for errors of parsing itself: --json, --color and their variables.
OutputOptions guess_output_options(std::span<const std::string> words);

}  // namespace shardwright::cli
