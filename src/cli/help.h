/// Help texts, from the command table.
#pragma once

#include <string>
#include <string_view>

#include "cli/command_table.h"

namespace shardwright::cli {

/// The verbs in groups and the global options.
std::string general_help();
std::string command_help(const Command& command);
/// "shardwright copy [options] SOURCE TARGET".
std::string usage_line(const Command& command);
/// "-n, --dry-run", "    --to FORMAT".
std::string option_signature(const OptionRow& option);
/// Lines of at most `width` columns, each after the first begun with `indent` spaces.
std::string wrap(std::string_view text, size_t width, size_t indent);

}  // namespace shardwright::cli
