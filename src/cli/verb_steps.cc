/// shardwright steps, forget, prune: the steps of a training run.
#include "shardwright/manager/steps.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "cli/json_output.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

constexpr std::chrono::seconds kDefaultAge{3600};

Result<uint64_t> number_of(std::string_view text, std::string_view option) {
  uint64_t number = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size())
    return fail(Code::kInvalidArgument, fmt::format("--{} is a whole number", option))
        .with_found(fmt::format("'{}'", text));
  return number;
}

Result<std::optional<uint64_t>> optional_number(const Arguments& arguments, std::string_view option) {
  if (!arguments.has(option)) return std::optional<uint64_t>();
  SHARDWRIGHT_ASSIGN(uint64_t number, number_of(arguments.text(option), option));
  return std::optional(number);
}

/// N:METRIC[:max]
Result<Retention::Best> best_of(std::string_view text) {
  Retention::Best best;
  size_t colon = text.find(':');
  if (colon == text.npos || colon + 1 == text.size())
    return fail(Code::kInvalidArgument, "--keep-best is N:METRIC, or N:METRIC:max")
        .with_found(fmt::format("'{}'", text));
  SHARDWRIGHT_ASSIGN(best.count, number_of(text.substr(0, colon), "keep-best"));
  std::string_view metric = text.substr(colon + 1);
  best.max = metric.ends_with(":max");
  if (best.max || metric.ends_with(":min")) metric.remove_suffix(4);
  best.metric = metric;
  return best;
}

Result<Retention> retention_of(const Arguments& arguments) {
  Retention out;
  SHARDWRIGHT_ASSIGN(out.last, optional_number(arguments, "keep-last"));
  SHARDWRIGHT_ASSIGN(out.every_steps, optional_number(arguments, "keep-every"));
  SHARDWRIGHT_ASSIGN(out.every_seconds, optional_number(arguments, "keep-interval"));
  for (const auto& text : arguments.all("keep-best")) {
    SHARDWRIGHT_ASSIGN(auto best, best_of(text));
    out.best.push_back(std::move(best));
  }
  for (const auto& text : arguments.all("keep-step")) {
    SHARDWRIGHT_ASSIGN(uint64_t step, number_of(text, "keep-step"));
    out.steps.push_back(step);
  }
  if (out.keeps_all())
    return fail(Code::kInvalidArgument, "which steps are to stay?")
        .with_hint("--keep-last 3, for example; --dry-run shows what would go");
  return out;
}

/// A directory that is not there has no steps; a mistyped name should not look like an empty run.
Status check_root(const std::string& root) {
  std::error_code error;
  if (std::filesystem::is_directory(root, error)) return {};
  return fail(Code::kNotFound, "no such directory").at_path(root);
}

std::string state_of(const Step& step) {
  if (!step.complete) return "partial";
  return step.facts.pinned ? "pinned" : "complete";
}

std::string time_of(const Step& step) {
  auto seconds = static_cast<std::time_t>(step.facts.time_ns / 1'000'000'000);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(seconds));
}

std::string metrics_of(const Step& step) {
  std::string out;
  for (const auto& [name, value] : step.facts.metrics)
    out += fmt::format("{}{}={:.6g}", out.empty() ? "" : " ", name, value);
  return out;
}

void print_json(Output& output, const std::vector<Step>& steps, const std::vector<Leftover>& leftovers) {
  JsonArray array(output);
  for (const Step& step : steps) {
    Json metrics = Json::object();
    for (const auto& [name, value] : step.facts.metrics) metrics[name] = json_number(value);
    array.add(Json{{"step", step.facts.step},
                   {"name", step.name},
                   {"state", state_of(step)},
                   {"time", time_of(step)},
                   {"nbytes", step.bytes},
                   {"new_nbytes", step.bytes - step.shared_bytes},
                   {"shared_nbytes", step.shared_bytes},
                   {"metrics", std::move(metrics)},
                   {"metadata", step.metadata},
                   {"proof", step.proof}});
  }
  for (const Leftover& leftover : leftovers)
    if (!leftover.broken)
      array.add(Json{{"step", nullptr},
                     {"name", leftover.name},
                     {"state", "leftover"},
                     {"time", nullptr},
                     {"nbytes", leftover.bytes},
                     {"new_nbytes", leftover.bytes},
                     {"shared_nbytes", 0},
                     {"metrics", Json::object()},
                     {"metadata", Json::object()},
                     {"proof", leftover.what}});
}

void print_steps(Output& output, const std::vector<Step>& steps) {
  bool shared = false;
  for (const Step& step : steps) shared |= step.shared_bytes != 0;
  std::vector<Column> columns = {{"step", true}, {"time (UTC)"}, {"size", true}, {"state"}, {"metrics", false, true}};
  if (shared) columns.insert(columns.begin() + 3, {{"new", true}, {"shared", true}});
  if (output.verbose()) columns.push_back({"because", false, true});
  print_table(output, columns, steps.size(), [&](size_t row, std::vector<std::string>& cells) {
    const Step& step = steps[row];
    cells = {std::to_string(step.facts.step), time_of(step), format_bytes(step.bytes), state_of(step),
             metrics_of(step)};
    if (shared)
      cells.insert(cells.begin() + 3, {format_bytes(step.bytes - step.shared_bytes), format_bytes(step.shared_bytes)});
    if (output.verbose()) cells.push_back(step.proof);
  });
}

void print_leftovers(Output& output, const std::vector<Leftover>& leftovers) {
  for (const Leftover& leftover : leftovers)
    output.line(fmt::format("{}  {}{}", leftover.name, leftover.what, leftover.live ? " (may be under way)" : ""));
}

/// Of files that other steps have too the disk has one.
std::string sizes_text(uint64_t bytes, uint64_t shared) {
  return shared == 0 ? format_bytes(bytes)
                     : fmt::format("{}, {} of it shared", format_bytes(bytes), format_bytes(shared));
}

void print_forgotten(Output& output, const Forgotten& forgotten, bool dry_run) {
  const auto& verdicts = forgotten.verdicts;
  auto goes = [&](size_t i) { return !verdicts[i].keep() && !forgotten.failures.contains(verdicts[i].step); };
  if (output.json()) {
    JsonArray array(output);
    for (size_t i = 0; i < verdicts.size(); ++i)
      array.add(Json{{"step", verdicts[i].step},
                     {"action", verdicts[i].keep() ? "keep" : "remove"},
                     {"reasons", verdicts[i].reasons},
                     {"nbytes", forgotten.steps[i].bytes}});
    return;
  }
  uint64_t bytes = 0, shared = 0, removed = 0;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    if (!goes(i)) continue;
    ++removed;
    bytes += forgotten.steps[i].bytes;
    shared += forgotten.steps[i].shared_bytes;
    if (output.quiet()) output.line(std::to_string(verdicts[i].step));
  }
  if (output.quiet()) return;
  print_table(output, std::vector<Column>{{"step", true}, {""}, {"because", false, true}}, verdicts.size(),
              [&](size_t row, std::vector<std::string>& cells) {
                const Verdict& verdict = verdicts[row];
                cells = {std::to_string(verdict.step), verdict.keep() ? "keep" : "remove",
                         verdict.keep() ? fmt::format("{}", fmt::join(verdict.reasons, "; ")) : "no rule keeps it"};
              });
  output.line(fmt::format("{} {} of {}, {}", dry_run ? "Would remove" : "Removed", removed,
                          counted(verdicts.size(), "step"), sizes_text(bytes, shared)));
}

}  // namespace

Result<int> run_steps(Invocation& invocation) {
  Output& output = invocation.output;
  std::string root = invocation.arguments.text("ROOT");
  SHARDWRIGHT_TRY(check_root(root));
  SHARDWRIGHT_ASSIGN(auto steps, list_steps(root, std::nullopt));
  SHARDWRIGHT_ASSIGN(auto leftovers, list_leftovers(root, std::nullopt, kDefaultAge));
  if (output.json()) {
    print_json(output, steps, leftovers);
    return 0;
  }
  if (output.quiet()) {
    for (const Step& step : steps)
      if (step.complete) output.line(std::to_string(step.facts.step));
    return 0;
  }
  print_steps(output, steps);
  std::erase_if(leftovers, [&](const Leftover& leftover) { return leftover.broken && !output.verbose(); });
  print_leftovers(output, leftovers);
  uint64_t bytes = 0, shared = 0, complete = 0;
  for (const Step& step : steps) {
    bytes += step.bytes;
    shared += step.shared_bytes;
    complete += step.complete;
  }
  output.line(output.styled(
      fmt::format("{}, {} complete, {}", counted(steps.size(), "step"), complete, sizes_text(bytes, shared)),
      Style::kDim));
  return 0;
}

Result<int> run_forget(Invocation& invocation) {
  Output& output = invocation.output;
  std::string root = invocation.arguments.text("ROOT");
  bool dry_run = invocation.arguments.has("dry-run");
  SHARDWRIGHT_ASSIGN(Retention rules, retention_of(invocation.arguments));
  SHARDWRIGHT_TRY(check_root(root));
  SHARDWRIGHT_ASSIGN(auto forgotten, forget_steps(root, std::nullopt, rules, {.dry_run = dry_run}));
  print_forgotten(output, forgotten, dry_run);
  auto& failures = forgotten.failures;
  if (failures.empty()) return 0;
  for (auto other = std::next(failures.begin()); other != failures.end(); ++other) output.warning(other->second.text());
  return std::move(failures.begin()->second);
}

Result<int> run_prune(Invocation& invocation) {
  Output& output = invocation.output;
  std::string root = invocation.arguments.text("ROOT");
  PruneOptions options;
  SHARDWRIGHT_ASSIGN(auto age, optional_number(invocation.arguments, "older-than"));
  if (age) options.age = std::chrono::seconds(static_cast<int64_t>(*age));
  options.dry_run = invocation.arguments.has("dry-run");
  SHARDWRIGHT_TRY(check_root(root));
  SHARDWRIGHT_ASSIGN(auto removed, prune_steps(root, std::nullopt, options));
  if (output.json()) {
    JsonArray array(output);
    for (const Leftover& leftover : removed)
      array.add(Json{{"name", leftover.name}, {"what", leftover.what}, {"nbytes", leftover.bytes}});
    return 0;
  }
  print_leftovers(output, removed);
  if (!output.quiet())
    output.line(
        fmt::format("{} {}", options.dry_run ? "Would remove" : "Removed", counted(removed.size(), "leftover")));
  return 0;
}

}  // namespace shardwright::cli
