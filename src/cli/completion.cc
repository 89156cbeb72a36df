/// shardwright completion: scripts for three shells, from the command table. Tensor names come from `shardwright ls -q` while completing;
/// they are names out of files, so no script ever lets the shell expand them.
#include <fmt/format.h>

#include <vector>

#include "cli/invocation.h"
#include "shardwright/format/format.h"

namespace shardwright::cli {
namespace {

/// "a|b" and the tables behind formats, dtypes and verbs; empty when any text will do.
std::vector<std::string> words_of(std::string_view choices, Completes completes) {
  std::vector<std::string> words;
  for (size_t end = 0; !choices.empty(); choices.remove_prefix(std::min(end + 1, choices.size()))) {
    end = std::min(choices.find('|'), choices.size());
    words.emplace_back(choices.substr(0, end));
  }
  if (completes == Completes::kFormat) {
    for (const Format* format : format_table()) {
      if (format->can.write) words.emplace_back(format->name);
    }
  } else if (completes == Completes::kDtype) {
    for (const DTypeRow& row : dtype_table()) {
      if (row.kind == Kind::kFloat) words.emplace_back(row.name);
    }
  } else if (completes == Completes::kVerb) {
    for (const Command& command : command_table()) words.emplace_back(command.name);
  }
  return words;
}

std::string all_names(const Command& command, std::string_view separator) {
  std::string out(command.name);
  for (std::string_view alias : command.aliases) out += fmt::format("{}{}", separator, alias);
  return out;
}

std::string option_words(std::span<const OptionRow> options) {
  std::string out;
  for (const OptionRow& option : options) {
    if (!option.short_name.empty()) out += fmt::format("-{} ", option.short_name);
    out += fmt::format("--{} ", option.name);
  }
  return out;
}

// ---- bash

constexpr std::string_view kBashHead = R"(# bash completion for shardwright
_shardwright_words() {  # the words that begin with the current one; taken literally
  local word
  for word in "$@"; do [[ $word == "$cur"* ]] && COMPREPLY+=("$word"); done
}
_shardwright_files() {
  local file
  compopt -o filenames 2>/dev/null
  while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$cur")
}
_shardwright_tensors() {
  local name
  compopt -o filenames 2>/dev/null  # quotes what needs it
  while IFS= read -r name; do [[ $name == "$cur"* ]] && COMPREPLY+=("$name"); done < <(shardwright ls -q -- "$1" 2>/dev/null)
}
_shardwright() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb="" path="" arguments=0 i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
)";

std::string bash_value(const OptionRow& option) {
  std::string flags = option.short_name.empty() ? "" : fmt::format("-{}|", option.short_name);
  std::vector<std::string> words = words_of(option.choices, option.completes);
  std::string action = !words.empty() ? fmt::format("_shardwright_words {}", fmt::join(words, " "))
                       : option.completes == Completes::kPath ? "_shardwright_files"
                                                              : ":";
  return fmt::format("    {}--{}) {}; return ;;\n", flags, option.name, action);
}

std::string bash_argument(const ArgumentRow& argument) {
  if (argument.completes == Completes::kPath) return "_shardwright_files";
  if (argument.completes == Completes::kTensor) return R"(_shardwright_tensors "$path")";
  return fmt::format("_shardwright_words {}", fmt::join(words_of(argument.choices, argument.completes), " "));
}

std::string bash_script() {
  std::string taking, values, verbs, cases;
  auto add_values = [&](std::span<const OptionRow> options) {
    for (const OptionRow& option : options) {
      if (option.value.empty()) continue;
      taking += fmt::format("{}--{}", taking.empty() ? "" : "|", option.name);
      if (!option.short_name.empty()) taking += fmt::format("|-{}", option.short_name);
      values += bash_value(option);
    }
  };
  add_values(global_options());
  for (const Command& command : command_table()) {
    add_values(command.options);
    verbs += all_names(command, " ") + " ";
    cases += fmt::format("    {})\n      if [[ $cur == -* ]]; then _shardwright_words {}{}; return; fi\n",
                         all_names(command, "|"), option_words(command.options), option_words(global_options()));
    std::string arms;
    for (size_t i = 0; i < command.arguments.size(); ++i)
      arms += fmt::format("        {}) {} ;;\n", i, bash_argument(command.arguments[i]));
    if (!arms.empty()) cases += fmt::format("      case $arguments in\n{}      esac\n", arms);
    cases += "      ;;\n";
  }
  return std::string(kBashHead) + fmt::format(
                                      "      {}) ((i++)) ;;\n      -*) ;;\n"
                                      "      *) if [[ -z $verb ]]; then verb=${{COMP_WORDS[i]}}; else ((arguments++ == "
                                      "0)) && path=${{COMP_WORDS[i]}}; fi ;;\n"
                                      "    esac\n  done\n  case $prev in\n{}  esac\n  case $verb in\n"
                                      "    \"\") if [[ $cur == -* ]]; then _shardwright_words {}; else "
                                      "_shardwright_words {}; fi ;;\n{}  esac\n}}\n"
                                      "complete -F _shardwright shardwright\n",
                                      taking, values, option_words(global_options()), verbs, cases);
}

// ---- zsh

std::string zsh_quoted(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

std::string zsh_action(std::string_view choices, Completes completes) {
  std::vector<std::string> words = words_of(choices, completes);
  if (!words.empty()) return fmt::format("({})", fmt::join(words, " "));
  if (completes == Completes::kPath) return "_files";
  return completes == Completes::kTensor ? "_shardwright_tensors" : "";
}

std::string zsh_option(const OptionRow& option) {
  std::string value =
      option.value.empty() ? "" : fmt::format(":{}:{}", option.value, zsh_action(option.choices, option.completes));
  std::string help = zsh_quoted(option.help), repeat = option.repeats ? "*" : "";
  std::string out = fmt::format(" \\\n        '{}--{}[{}]{}'", repeat, option.name, help, value);
  if (!option.short_name.empty()) out += fmt::format(" \\\n        '-{}[{}]{}'", option.short_name, help, value);
  return out;
}

std::string zsh_script() {
  std::string verbs, cases;
  for (const Command& command : command_table()) {
    verbs += fmt::format("    '{}:{}'\n", command.name, zsh_quoted(command.summary));
    cases += fmt::format("    {})\n      _arguments -s", all_names(command, "|"));
    for (const OptionRow& option : command.options) cases += zsh_option(option);
    for (const OptionRow& option : global_options()) cases += zsh_option(option);
    for (size_t i = 0; i < command.arguments.size(); ++i) {
      const ArgumentRow& argument = command.arguments[i];
      cases += fmt::format(" \\\n        '{}{}:{}:{}'", i + 1, argument.required ? "" : ":", argument.name,
                           zsh_action(argument.choices, argument.completes));
    }
    cases += "\n      ;;\n";
  }
  return fmt::format(R"(#compdef shardwright
_shardwright_tensors() {{
  local word path
  for word in "${{words[@]:1}}"; do [[ $word != -* ]] && {{ path=$word; break; }}; done
  local -a names=("${{(@f)$(shardwright ls -q -- "${{(Q)path}}" 2>/dev/null)}}")
  compadd -a names
}}
_shardwright() {{
  local -a verbs=(
{}  )
  if ((CURRENT == 2)); then
    _describe verb verbs
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
{}  esac
}}
compdef _shardwright shardwright
)",
                     verbs, cases);
}

// ---- fish

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_option(const OptionRow& option, const std::string& condition) {
  std::string out = "complete -c shardwright";
  if (!condition.empty()) out += fmt::format(" -n '__fish_seen_subcommand_from {}'", condition);
  if (!option.short_name.empty()) out += fmt::format(" -s {}", option.short_name);
  out += fmt::format(" -l {} -d {}", option.name, fish_quoted(option.help));
  std::vector<std::string> words = words_of(option.choices, option.completes);
  if (!words.empty())
    out += fmt::format(" -x -a '{}'", fmt::join(words, " "));
  else if (option.completes == Completes::kPath)
    out += " -r -F";
  else if (!option.value.empty())
    out += " -x";
  return out + "\n";
}

std::string fish_script() {
  std::string out =
      "# fish completion for shardwright\n"
      "function __shardwright_tensors\n"
      "  set -l words (commandline -opc | string match -v -- '-*')\n"
      "  test (count $words) -eq 3; and shardwright ls -q -- $words[3] 2>/dev/null\n"
      "end\n"
      "complete -c shardwright -f\n";
  std::string verbs;
  for (const Command& command : command_table()) verbs += all_names(command, " ") + " ";
  for (const Command& command : command_table()) {
    out += fmt::format("complete -c shardwright -n 'not __fish_seen_subcommand_from {}' -a {} -d {}\n", verbs,
                       command.name, fish_quoted(command.summary));
    std::string names = all_names(command, " ");
    for (const OptionRow& option : command.options) out += fish_option(option, names);
    for (const ArgumentRow& argument : command.arguments) {
      std::string offer = argument.completes == Completes::kPath ? "-F"
                          : argument.completes == Completes::kTensor
                              ? "-a '(__shardwright_tensors)'"
                              : fmt::format("-a '{}'", fmt::join(words_of(argument.choices, argument.completes), " "));
      out += fmt::format("complete -c shardwright -n '__fish_seen_subcommand_from {}' {}\n", names, offer);
    }
  }
  for (const OptionRow& option : global_options()) out += fish_option(option, "");
  return out;
}

}  // namespace

Result<int> run_completion(Invocation& invocation) {
  std::string shell = invocation.arguments.text("SHELL");
  invocation.output.write(shell == "bash" ? bash_script() : shell == "zsh" ? zsh_script() : fish_script());
  return 0;
}

}  // namespace shardwright::cli
