#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/invocation.h"

namespace shardwright::cli {
namespace {

constexpr size_t kWidth = 80, kNameColumn = 26;

std::string row(std::string_view name, std::string_view text) {
  std::string out = fmt::format("  {:<{}}", name, kNameColumn - 2);
  if (name.size() + 4 > kNameColumn) out = fmt::format("  {}\n{}", name, std::string(kNameColumn, ' '));
  return out + wrap(text, kWidth - kNameColumn, kNameColumn) + "\n";
}

std::string option_rows(std::span<const OptionRow> options) {
  std::string out;
  for (const OptionRow& option : options) {
    std::string text(option.help);
    if (!option.choices.empty()) {
      std::string choices(option.choices);
      std::replace(choices.begin(), choices.end(), '|', '/');
      text += " (" + choices + ")";
    }
    out += row(option_signature(option), text);
  }
  return out;
}

}  // namespace

std::string wrap(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    if (column > 0 && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string option_signature(const OptionRow& option) {
  std::string out = option.short_name.empty() ? "    " : fmt::format("-{}, ", option.short_name);
  out += fmt::format("--{}", option.name);
  if (!option.value.empty()) out += fmt::format(" {}", option.value);
  return out;
}

std::string usage_line(const Command& command) {
  std::string out = fmt::format("shardwright {}", command.name);
  if (!command.options.empty()) out += " [options]";
  for (const ArgumentRow& argument : command.arguments) {
    out += argument.required ? fmt::format(" {}", argument.name) : fmt::format(" [{}]", argument.name);
  }
  return out;
}

std::string general_help() {
  std::string out =
      "shardwright: look at, copy and convert checkpoints larger than memory\n\n"
      "Usage: shardwright VERB [options] [arguments]\n";
  for (Group group : {Group::kLook, Group::kMove, Group::kSteps, Group::kAbout}) {
    out += fmt::format("\n{}\n", group_title(group));
    for (const Command& command : command_table()) {
      if (command.group != group) continue;
      std::string names(command.name);
      for (std::string_view alias : command.aliases) names += fmt::format(", {}", alias);
      out += row(names, command.summary);
    }
  }
  out += "\nOptions of every verb\n" + option_rows(global_options());
  out += "\n" +
         wrap(
             "Every option can also be given as a variable: SHARDWRIGHT_MEMORY=64MiB. Sizes: 5GB is 5*10^9 bytes, 5GiB "
             "is 5*2^30. "
             "'shardwright VERB --help' explains a verb, 'shardwright man' is the manual.",
             kWidth, 0) +
         "\n";
  return out;
}

std::string command_help(const Command& command) {
  std::string out = fmt::format("Usage: {}\n", usage_line(command));
  if (!command.aliases.empty()) out += fmt::format("Also:  {}\n", fmt::join(command.aliases, ", "));
  std::string_view text = command.description;
  while (!text.empty()) {
    size_t end = std::min(text.find("\n\n"), text.size());
    out += "\n" + wrap(text.substr(0, end), kWidth, 0) + "\n";
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  if (!command.arguments.empty()) {
    out += "\nArguments\n";
    for (const ArgumentRow& argument : command.arguments) out += row(argument.name, argument.help);
  }
  if (!command.options.empty()) out += "\nOptions\n" + option_rows(command.options);
  out += "\nOptions of every verb\n" + option_rows(global_options());
  out += "\nExamples\n";
  for (const Example& example : command.examples) out += fmt::format("  # {}\n  {}\n", example.what, example.command);
  return out;
}

Result<int> run_help(Invocation& invocation) {
  std::string verb = invocation.arguments.text("VERB");
  if (verb.empty()) {
    invocation.output.write(general_help());
    return 0;
  }
  const Command* command = find_command(verb);
  if (!command) return fail(Code::kInvalidArgument, "unknown verb '" + verb + "'").with_hint("see 'shardwright help'");
  invocation.output.write(command_help(*command));
  return 0;
}

}  // namespace shardwright::cli
