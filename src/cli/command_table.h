/// The verbs of the program: one row each. Parsing, help, the manual page and shell completion all read this table.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright::cli {

struct Invocation;

/// What a shell offers for a value.
enum class Completes : uint8_t { kNothing, kPath, kTensor, kFormat, kDtype, kVerb };

struct OptionRow {
  std::string_view short_name;  ///< "l"; may be empty
  std::string_view name;        ///< "long", without dashes; also names the variable SHARDWRIGHT_LONG
  std::string_view value;       ///< "SIZE"; empty: a flag
  std::string_view help;
  std::string_view choices = "";  ///< "auto|always|never"; empty: anything
  bool repeats = false;           ///< may be given several times
  Completes completes = Completes::kNothing;
};

struct ArgumentRow {
  std::string_view name;  ///< "PATH"
  std::string_view help;
  bool required = true;
  Completes completes = Completes::kPath;
  std::string_view choices = "";
};

struct Example {
  std::string_view what, command;
};

/// kLook reads, kMove writes, kSteps is about training runs, kAbout about the program itself.
enum class Group : uint8_t { kLook, kMove, kSteps, kAbout };
std::string_view group_title(Group group);

struct Command {
  std::string_view name;
  std::span<const std::string_view> aliases;
  Group group;
  std::string_view summary;      ///< one line, for the list of verbs
  std::string_view description;  ///< a paragraph or two (separated by an empty line), for help and manual
  std::span<const ArgumentRow> arguments;
  std::span<const OptionRow> options;
  std::array<Example, 3> examples;
  /// The exit code, or the error to print.
  Result<int> (*run)(Invocation& invocation);
};

std::span<const Command> command_table();
/// Options that every verb takes.
std::span<const OptionRow> global_options();
/// By name or alias; nullptr when there is none.
const Command* find_command(std::string_view name);
/// "SHARDWRIGHT_MAX_SHARD_SIZE". --help and --version have none: "".
std::string variable_name(const OptionRow& option);

/// Rows of the exit code table: what the program adds to the library's error codes comes first.
struct ExitRow {
  int code;
  std::string meaning;
};
/// One row per exit code, ascending.
std::span<const ExitRow> exit_table();

/// One per verb, each in verb_NAME.cc (completion.cc, man.cc, help.cc; forget and prune in verb_steps.cc, restore in verb_copy.cc).
Result<int> run_ls(Invocation&);
Result<int> run_info(Invocation&);
Result<int> run_show(Invocation&);
Result<int> run_map(Invocation&);
Result<int> run_copy(Invocation&);
Result<int> run_verify(Invocation&);
Result<int> run_diff(Invocation&);
Result<int> run_hash(Invocation&);
Result<int> run_reindex(Invocation&);
Result<int> run_ocdbt(Invocation&);
Result<int> run_steps(Invocation&);
Result<int> run_forget(Invocation&);
Result<int> run_prune(Invocation&);
Result<int> run_restore(Invocation&);
Result<int> run_formats(Invocation&);
Result<int> run_completion(Invocation&);
Result<int> run_man(Invocation&);
Result<int> run_help(Invocation&);

}  // namespace shardwright::cli
