/// shardwright man: the manual page as mdoc, from the command table.
#include <fmt/format.h>

#include "cli/help.h"
#include "cli/invocation.h"

namespace shardwright::cli {
namespace {

/// Text for a macro line or a text line: nothing in it is taken for mdoc, and no line begins with a control character.
std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '"')
      out += "\\(dq";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '~')
      out += "\\(ti";
    else
      out += c;
  }
  return !out.empty() && out[0] == '.' ? "\\&" + out : out;
}

/// Paragraphs, one sentence a line as mdoc wants it; a period within a word or after one letter ends none.
std::string paragraphs(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    size_t end = std::min(text.find("\n\n"), text.size());
    std::string_view paragraph = text.substr(0, end);
    while (!paragraph.empty()) {
      size_t stop = std::min(paragraph.find(". "), paragraph.size());
      size_t taken = std::min(stop + 1, paragraph.size());
      out += escaped(paragraph.substr(0, taken)) + "\n";
      paragraph.remove_prefix(std::min(taken + 1, paragraph.size()));
    }
    text.remove_prefix(std::min(end + 2, text.size()));
    if (!text.empty()) out += ".Pp\n";
  }
  return out;
}

std::string option_items(std::span<const OptionRow> options) {
  std::string out;
  for (const OptionRow& option : options) {
    std::string value = option.value.empty() ? "" : fmt::format(" Ar {}", option.value);
    out += option.short_name.empty()
               ? fmt::format(".It Fl \\-{}{}\n", escaped(option.name), value)
               : fmt::format(".It Fl {} , Fl \\-{}{}\n", option.short_name, escaped(option.name), value);
    out += escaped(option.help) + ".\n";
    std::string_view choices = option.choices;
    if (choices.empty()) continue;
    out += "One of";
    for (size_t end = 0; !choices.empty(); choices.remove_prefix(std::min(end + 1, choices.size()))) {
      end = std::min(choices.find('|'), choices.size());
      out += fmt::format(" {}{}", escaped(choices.substr(0, end)), end == choices.size() ? ".\n" : ",");
    }
  }
  return out.empty() ? "" : ".Bl -tag -width Ds\n" + out + ".El\n";
}

std::string verb_section(const Command& command) {
  std::string out = fmt::format(".Ss {}\n.Nm\n.Cm {}\n", command.name, command.name);
  if (!command.options.empty()) out += ".Op Ar options\n";
  for (const ArgumentRow& argument : command.arguments) {
    out += fmt::format(".{}Ar {}\n", argument.required ? "" : "Op ", argument.name);
  }
  out += ".Pp\n" + paragraphs(command.description);
  if (!command.aliases.empty()) {
    out += ".Pp\nAlso";
    for (size_t i = 0; i < command.aliases.size(); ++i) out += fmt::format("{} {}", i ? "," : "", command.aliases[i]);
    out += ".\n";
  }
  std::string items;
  for (const ArgumentRow& argument : command.arguments)
    items += fmt::format(".It Ar {}\n{}.\n", argument.name, escaped(argument.help));
  if (!items.empty()) out += ".Bl -tag -width Ds\n" + items + ".El\n";
  return out + option_items(command.options);
}

std::string environment_section() {
  std::string out =
      ".Sh ENVIRONMENT\nEvery long option can be given as a variable; the command line wins.\n.Bl -tag -width Ds\n";
  auto add = [&](const OptionRow& option) {
    std::string name = variable_name(option);
    if (!name.empty()) out += fmt::format(".It Ev {}\nas\n.Fl \\-{} .\n", name, escaped(option.name));
  };
  for (const OptionRow& option : global_options()) add(option);
  out +=
      ".It Ev SHARDWRIGHT_ Ns Ar OPTION\nlikewise for the options of a verb, in capitals with underscores: "
      "SHARDWRIGHT_MAX_SHARD_SIZE.\n";
  return out + ".It Ev NO_COLOR\nno colour, unless\n.Fl \\-color\nsays otherwise.\n.El\n";
}

std::string exit_section() {
  std::string out = ".Sh EXIT STATUS\n.Bl -tag -width Ds\n";
  for (const ExitRow& row : exit_table()) out += fmt::format(".It {}\n{}.\n", row.code, escaped(row.meaning));
  return out + ".El\n";
}

std::string example_section() {
  std::string out = ".Sh EXAMPLES\n";
  for (const Command& command : command_table()) {
    for (const Example& example : command.examples) {
      out += fmt::format("{}:\n.Pp\n.Dl {}\n.Pp\n", escaped(example.what), escaped(example.command));
    }
  }
  out.erase(out.size() - 4);  // no .Pp at the end of a section
  return out;
}

constexpr std::string_view kJson =
    ".Sh JSON\nWith\n.Fl \\-json\nresults are JSON on standard output and nothing else; errors are one object on "
    "standard error:\n"
    "{type: \\(dqerror\\(dq, code, message, path, tensor, offset, found, expected, context, hint, exit_code}.\n"
    "Dtypes are spelled as in safetensors, shapes are in the order of NumPy, sizes are bytes, offsets are from the "
    "start of the file.\n"
    "Fields that do not apply are null.\nVerbs that take long print one object a line, each with a type:\n"
    "status {phase, bytes_done, bytes_total, bytes_per_second, seconds}, finding, and summary at the end.\n";

std::string manual() {
  std::string out =
      ".Dd November 29, 2026\n.Dt SHARDWRIGHT 1\n.Os\n.Sh NAME\n.Nm shardwright\n.Nd look at, copy and convert "
      "checkpoints of any size\n"
      ".Sh SYNOPSIS\n.Nm\n.Ar verb\n.Op Ar options\n.Op Ar arguments\n.Sh DESCRIPTION\n.Nm\n"
      "moves the tensors of checkpoints between formats and shard sizes, in bounded memory, and looks into them.\n"
      "A checkpoint is a file, an index file, or a directory; its format is told by its content.\n"
      "Sizes are written 5GB (5*10^9 bytes) or 5GiB (5*2^30) and printed in units of 1024.\n";
  for (Group group : {Group::kLook, Group::kMove, Group::kSteps, Group::kAbout}) {
    out += fmt::format(".Pp\n{}:\n.Bl -tag -width completion\n", group_title(group));
    for (const Command& command : command_table()) {
      if (command.group == group) out += fmt::format(".It Cm {}\n{}\n", command.name, escaped(command.summary));
    }
    out += ".El\n";
  }
  out += ".Sh OPTIONS OF EVERY VERB\n" + option_items(global_options()) + ".Sh VERBS\n";
  for (const Command& command : command_table()) out += verb_section(command);
  return out + std::string(kJson) + environment_section() + exit_section() + example_section();
}

}  // namespace

Result<int> run_man(Invocation& invocation) {
  invocation.output.write(manual());
  return 0;
}

}  // namespace shardwright::cli
