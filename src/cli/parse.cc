#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "cli/help.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

Error usage(std::string message, std::string hint) {
  return fail(Code::kInvalidArgument, std::move(message)).with_hint(std::move(hint));
}

std::string see_help(const Command* command) {
  return command ? "see 'shardwright " + std::string(command->name) + " --help'" : "see 'shardwright --help'";
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names, const Command* command) {
  std::vector<std::string> near = nearest_names(wanted, names, 1);
  return near.empty() ? see_help(command) : "did you mean '" + near.front() + "'?";
}

/// What people write for yes and no; nullopt for anything else.
std::optional<bool> truth(std::string_view text) {
  for (std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"", "0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

bool names_option(const OptionRow& option, std::string_view word) {
  return (word.starts_with("--") && word.substr(2) == option.name) ||
         (!option.short_name.empty() && word.size() == 2 && word[0] == '-' && word.substr(1) == option.short_name);
}

/// True when the next word belongs to this one, whichever verb follows.
bool takes_next_word(std::string_view word) {
  auto matches = [&](const OptionRow& option) { return !option.value.empty() && names_option(option, word); };
  if (std::any_of(global_options().begin(), global_options().end(), matches)) return true;
  for (const Command& command : command_table()) {
    if (std::any_of(command.options.begin(), command.options.end(), matches)) return true;
  }
  return false;
}

/// Index of the verb; words.size() when there is none.
size_t find_verb(std::span<const std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.empty() || word[0] != '-') return i;
    if (takes_next_word(word)) ++i;
  }
  return words.size();
}

std::vector<OptionRow> options_of(const Command* command) {
  std::vector<OptionRow> rows;
  if (command) rows.assign(command->options.begin(), command->options.end());
  rows.insert(rows.end(), global_options().begin(), global_options().end());
  return rows;
}

Error unexpected(const std::string& word, const Command* command, const std::vector<OptionRow>& rows) {
  if (word.size() > 1 && word[0] == '-') {
    std::vector<std::string> names;
    for (const OptionRow& row : rows) names.push_back("--" + std::string(row.name));
    std::string name = word.substr(0, word.find('='));
    std::string of = command ? " of " + in_quotes(command->name) : "";
    return usage("unknown option " + in_quotes(name) + of, did_you_mean(name, names, command));
  }
  return usage("one argument too many: " + in_quotes(word),
               command ? "usage: " + usage_line(*command) : see_help(nullptr));
}

/// Fills `arguments` from the words. The library throws; nothing leaves this function.
Status read_words(std::vector<std::string> words, const Command* command, const std::vector<OptionRow>& rows,
                  Arguments& arguments) try {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::pair<std::string, CLI::Option*>> options;
  for (const OptionRow& row : rows) {
    std::string names =
        (row.short_name.empty() ? "" : "-" + std::string(row.short_name) + ",") + "--" + std::string(row.name);
    CLI::Option* option = row.value.empty() ? app.add_flag(names) : app.add_option(names);
    options.emplace_back(row.name, option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
  }
  if (command) {
    for (const ArgumentRow& row : command->arguments) {
      options.emplace_back(row.name, app.add_option(std::string(row.name)));
    }
  }
  std::reverse(words.begin(), words.end());  // as App::parse(vector) wants it
  app.parse(std::move(words));
  std::vector<std::string> rest = app.remaining();
  auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-' && word != "--"; };
  auto wrong = std::find_if(rest.begin(), rest.end(), is_option);
  if (wrong == rest.end())
    wrong = std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word != "--"; });
  if (wrong != rest.end()) return unexpected(*wrong, command, rows);
  for (auto& [name, option] : options) arguments.set(name, option->results());
  return {};
} catch (const CLI::ParseError& error) {
  std::string message = error.what();
  // "--to: 1 required TEXT missing"
  if (size_t colon = message.find(": 1 required"); colon != std::string::npos) {
    message = "option " + in_quotes(message.substr(0, colon)) + " needs a value";
  }
  return usage(std::move(message), see_help(command));
}

bool is_choice(std::string_view choices, const std::string& text) {
  return !text.empty() && ("|" + std::string(choices) + "|").find("|" + text + "|") != std::string::npos;
}

/// The values of one option are such as its row takes; a switch is set or not afterwards. origin: what the user wrote.
Status check_values(const Command* command, const OptionRow& row, const std::string& origin, Arguments& arguments) {
  std::vector<std::string> values = arguments.all(row.name);
  if (row.value.empty()) {
    std::vector<std::string> set;
    for (const std::string& text : values) {
      std::optional<bool> on = truth(text);
      if (!on) return usage(origin + " is a switch, it cannot be " + in_quotes(text), see_help(command));
      if (*on) set.emplace_back("true");
    }
    arguments.set(row.name, std::move(set));
    return {};
  }
  for (const std::string& text : values) {
    // A tensor may have the empty name: only globs may be empty.
    if (text.empty() && !row.repeats) return usage(origin + " is empty", see_help(command));
    if (!row.choices.empty() && !is_choice(row.choices, text))
      return usage(origin + " cannot be " + in_quotes(text), "one of " + std::string(row.choices));
  }
  return {};
}

/// Options not given, from the environment; then every value is checked against its row.
Status complete(const Command* command, const std::vector<OptionRow>& rows, Arguments& arguments) {
  for (const OptionRow& row : rows) {
    std::string origin = "--" + std::string(row.name);
    std::string variable = variable_name(row);
    const char* value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (!arguments.has(row.name) && value && *value) {
      arguments.set(row.name, {value});
      origin = variable;
    }
    SHARDWRIGHT_TRY(check_values(command, row, origin, arguments));
  }
  return {};
}

Status check_arguments(const Command& command, const Arguments& arguments) {
  for (const ArgumentRow& row : command.arguments) {
    if (!arguments.has(row.name)) {
      if (!row.required) continue;
      return usage("missing " + std::string(row.name) + ": " + std::string(row.help), "usage: " + usage_line(command));
    }
    std::string text = arguments.text(row.name);
    if (text.empty()) return usage(std::string(row.name) + " is empty", "usage: " + usage_line(command));
    if (text == "-" && row.completes == Completes::kPath)
      return usage(std::string(row.name) + " cannot be '-': a checkpoint is no stream", "a file of that name is './-'");
    if (!row.choices.empty() && !is_choice(row.choices, text)) {
      return usage(std::string(row.name) + " cannot be " + in_quotes(text), "one of " + std::string(row.choices));
    }
  }
  return {};
}

When when(const std::string& text) {
  if (text == "always") return When::kAlways;
  return text == "never" ? When::kNever : When::kAuto;
}

Status read_globals(Parsed& parsed) {
  const Arguments& arguments = parsed.arguments;
  parsed.help = arguments.has("help");
  parsed.version = arguments.has("version");
  parsed.output.json = arguments.has("json");
  parsed.output.quiet = arguments.has("quiet");
  parsed.output.verbose = static_cast<int>(arguments.all("verbose").size());
  parsed.output.progress = when(arguments.text("progress"));
  parsed.output.color = when(arguments.text("color"));
  parsed.job.open.isolate = arguments.has("isolate");
  if (std::string text = arguments.text("memory"); !text.empty()) {
    Result<uint64_t> size = parse_size(text);
    if (!size.ok()) return std::move(size.error()).within("in --memory");
    parsed.job.plan.memory_bytes = *size;
  }
  if (std::string text = arguments.text("threads"); !text.empty()) {
    int threads = 0;
    auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), threads);
    if (problem != std::errc() || end != text.data() + text.size() || threads < 1 || threads > 1024) {
      return usage("--threads cannot be " + in_quotes(text), "a number from 1 to 1024");
    }
    parsed.job.plan.threads = threads;
  }
  return {};
}

Error unknown_verb(const std::string& word) {
  std::vector<std::string> names;
  for (const Command& command : command_table()) {
    names.emplace_back(command.name);
    for (std::string_view alias : command.aliases) names.emplace_back(alias);
  }
  return usage("unknown verb " + in_quotes(word), did_you_mean(word, names, nullptr));
}

}  // namespace

std::string Arguments::text(std::string_view name) const {
  const std::vector<std::string>& values = all(name);
  return values.empty() ? "" : values.back();
}

const std::vector<std::string>& Arguments::all(std::string_view name) const {
  auto found = values_.find(name);
  if (found == values_.end()) std::abort();  // not in the table: a bug of ours
  return found->second;
}

void Arguments::set(std::string_view name, std::vector<std::string> values) {
  values_.insert_or_assign(std::string(name), std::move(values));
}

Result<Parsed> parse_command_line(std::span<const std::string> words) {
  Parsed parsed;
  std::vector<std::string> rest(words.begin(), words.end());
  if (size_t verb = find_verb(words); verb < words.size()) {
    parsed.command = find_command(words[verb]);
    if (!parsed.command) return unknown_verb(words[verb]);
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(verb));
  }
  std::vector<OptionRow> rows = options_of(parsed.command);
  SHARDWRIGHT_TRY(read_words(std::move(rest), parsed.command, rows, parsed.arguments));
  SHARDWRIGHT_TRY(complete(parsed.command, rows, parsed.arguments));
  SHARDWRIGHT_TRY(read_globals(parsed));
  if (parsed.help || parsed.version) return parsed;
  if (!parsed.command) return usage("no verb given", see_help(nullptr));
  SHARDWRIGHT_TRY(check_arguments(*parsed.command, parsed.arguments));
  return parsed;
}

OutputOptions guess_output_options(std::span<const std::string> words) {
  OutputOptions options;
  if (const char* value = std::getenv("SHARDWRIGHT_JSON")) options.json = truth(value).value_or(false);
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word == "--json") options.json = true;
  }
  return options;
}

}  // namespace shardwright::cli
