#include "shardwright/manager/steps.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "shardwright/manager/step_files.h"
#include "shardwright/manager/tree_files.h"
#include "shardwright/store/directory.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

/// The names that "ckpt_000005" may be one of: without padding, and padded to so many digits.
std::vector<StepNames> names_like(std::string_view name) {
  if (name.empty() || name[0] == '.') return {};
  size_t digits = name.find_last_not_of("0123456789") + 1;
  bool plain = digits == 0, prefixed = digits > 1 && name[digits - 1] == '_';
  if (digits == name.size() || !(plain || prefixed)) return {};
  std::vector<StepNames> out;
  std::string prefix(name.substr(0, plain ? 0 : digits - 1));
  for (int padded : {0, static_cast<int>(std::min<size_t>(name.size() - digits, 99))}) {
    StepNames names{prefix, padded};
    if (names.check().ok() && names.step_of(name)) out.push_back(std::move(names));
  }
  return out;
}

/// A directory, or something of which nobody can tell. What is not there, a link to nothing and one in a circle are none.
bool may_be_directory(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) return S_ISDIR(info.st_mode);
  return !detail::means_missing(errno) && errno != ELOOP;
}

/// All but the proof and the sizes. trouble: what the rules go by cannot be read.
Step facts_of_step(const std::string& root, uint64_t number, const std::string& name) {
  Step step;
  step.facts.step = number;
  step.name = name;
  std::string directory = root + "/" + name;
  auto metadata = read_step_metadata(directory);
  if (metadata.ok()) {
    step.facts.time_ns = metadata->commit_ns;
    step.metadata = std::move(metadata->custom);
  }
  if (step.facts.time_ns == 0) step.facts.time_ns = detail::look_at_tree(directory).newest_ns;
  auto metrics = read_step_metrics(directory);
  if (metrics.ok()) {
    step.facts.metrics = std::move(*metrics);
  } else {
    step.trouble = std::move(metrics.error());
  }
  std::error_code error;
  step.facts.pinned = fs::exists(fs::path(root) / kPins / name, error);
  if (error && !detail::means_missing(error.value()))
    step.trouble = errno_error(error.value(), "cannot look at", fmt::format("{}/{}/{}", root, kPins, name));
  return step;
}

void prove(const std::string& root, Step& step) {
  std::string directory = root + "/" + step.name;
  auto files = detail::look_at_tree(directory);
  step.bytes = files.bytes;
  step.shared_bytes = files.shared_bytes;
  auto proof = detail::prove_step(directory, files);
  step.complete = proof.complete && !step.trouble;
  step.proof = proof.complete && step.trouble ? "nobody can tell: " + step.trouble->text() : std::move(proof.text);
  if (!proof.complete) step.trouble = std::move(proof.trouble);
}

Step look_at_step(const std::string& root, uint64_t number, const std::string& name) {
  Step step = facts_of_step(root, number, name);
  prove(root, step);
  return step;
}

/// As one of the two above has it.
Result<std::vector<Step>> each_step(const std::string& root, const std::optional<StepNames>& names,
                                    Step (*look)(const std::string& root, uint64_t number, const std::string& name)) {
  SHARDWRIGHT_ASSIGN(auto found, list_step_names(root, names));
  std::vector<Step> steps;
  for (const auto& [number, name] : found) steps.push_back(look(root, number, name));
  return steps;
}

std::vector<StepFacts> facts_of(const std::vector<Step>& steps) {
  std::vector<StepFacts> out;
  for (const auto& step : steps) out.push_back(step.facts);
  return out;
}

Error no_step(const std::string& root, const std::optional<StepNames>& names, const std::string& wanted) {
  std::vector<std::string> there;
  auto steps = list_steps(root, names);
  for (const auto& step : steps.ok() ? *steps : std::vector<Step>())
    if (step.complete) there.push_back(std::to_string(step.facts.step));
  return fail(Code::kNotFound, wanted)
      .at_path(root)
      .with_hint(there.empty() ? "`shardwright steps` says what is there, and what it lacks"
                               : fmt::format("there are {}", fmt::join(there, ", ")));
}

/// What follows '@'.
Result<Step> choose_step(const std::string& root, const std::string& which) {
  if (which.empty() || which == "latest") return complete_step(root, std::nullopt);
  if (which.starts_with("best:")) {
    std::string metric = which.substr(5);
    bool max = metric.ends_with(":max");
    if (max || metric.ends_with(":min")) metric.resize(metric.size() - 4);
    SHARDWRIGHT_ASSIGN(auto best, best_step(root, std::nullopt, metric, max));
    return best ? Result<Step>(std::move(*best)) : no_step(root, {}, fmt::format("no step has a metric '{}'", metric));
  }
  uint64_t number = 0;
  auto [end, problem] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (problem != std::errc() || end != which.data() + which.size())
    return fail(Code::kInvalidArgument, "no such way to name a step")
        .with_found("@" + which)
        .with_expected("@NUMBER, @latest, or @best:METRIC[:max]");
  return complete_step(root, std::nullopt, number);
}

/// Takes all for complete, and proves those on which something hangs; where one is none, the others are judged anew.
Forgotten judge(const std::string& root, std::vector<Step> steps, const Retention& retention, bool lean) {
  std::vector<Verdict> verdicts;
  std::vector<Step> unknown;
  std::set<uint64_t> proved;
  for (size_t before = steps.size() + 1; before != steps.size();) {
    before = steps.size();
    verdicts = judge_steps(facts_of(steps), retention);
    for (size_t i = 0; i < steps.size(); ++i) {
      bool stays_anyway = verdicts[i].keep() && !verdicts[i].counted && !steps[i].trouble;
      if (!(lean && stays_anyway) && proved.insert(steps[i].facts.step).second) prove(root, steps[i]);
    }
    auto gone = std::stable_partition(steps.begin(), steps.end(), [&](const Step& step) {
      return step.complete || !proved.contains(step.facts.step);
    });
    std::copy_if(gone, steps.end(), std::back_inserter(unknown), [](const Step& step) { return step.trouble; });
    steps.erase(gone, steps.end());
  }
  std::ranges::sort(unknown, {}, [](const Step& step) { return step.facts.step; });
  for (auto& step : unknown) {
    verdicts.push_back({step.facts.step, {step.proof}});
    steps.push_back(std::move(step));
  }
  return {std::move(steps), std::move(verdicts)};
}

}  // namespace

Result<StepNames> names_of_run(const std::string& root) {
  struct Run {
    uint64_t finished = 0, begun = 0, newest = 0;
  };
  std::map<std::pair<std::string, int>, Run> runs;
  SHARDWRIGHT_ASSIGN(auto entries, detail::names_in(root));
  for (const auto& entry : entries) {
    auto all = names_like(entry);
    if (all.empty() || !may_be_directory(root + "/" + entry)) continue;
    Marks marks = marks_of(root + "/" + entry);
    for (const auto& names : all) {
      Run& run = runs[{names.prefix, names.digits}];
      run.finished += marks == Marks::kFinished;
      run.begun += marks == Marks::kBegun;
      run.newest = std::max(run.newest, names.step_of(entry).value_or(0));
    }
  }
  // By the order of the map plain numbers are first, and of equals the first one stays.
  StepNames best;
  auto rank = [](const StepNames& names, const Run& run) {
    return std::tuple(run.finished, run.begun, names.prefix.empty(), run.newest);
  };
  std::optional<std::tuple<uint64_t, uint64_t, bool, uint64_t>> most;
  for (const auto& [key, run] : runs) {
    StepNames names{key.first, key.second};
    if (most && rank(names, run) <= *most) continue;
    most = rank(names, run);
    best = std::move(names);
  }
  return best;
}

Result<std::vector<std::pair<uint64_t, std::string>>> list_step_names(const std::string& root,
                                                                      const std::optional<StepNames>& names) {
  if (!names) {
    SHARDWRIGHT_ASSIGN(auto found, names_of_run(root));
    return list_step_names(root, found);
  }
  std::vector<std::pair<uint64_t, std::string>> out;
  SHARDWRIGHT_ASSIGN(auto entries, detail::names_in(root));
  for (auto& name : entries)
    if (auto number = names->step_of(name); number && may_be_directory(root + "/" + name))
      out.emplace_back(*number, std::move(name));
  std::ranges::sort(out);
  return out;
}

Result<std::vector<Step>> list_steps(const std::string& root, const std::optional<StepNames>& names) {
  return each_step(root, names, look_at_step);
}

Result<std::optional<Step>> read_step(const std::string& root, const std::optional<StepNames>& names, uint64_t number) {
  if (!names) {
    SHARDWRIGHT_ASSIGN(auto found, names_of_run(root));
    return read_step(root, found, number);
  }
  std::string name = names->name_of(number);
  if (!may_be_directory(root + "/" + name)) return std::optional<Step>();
  return std::optional(look_at_step(root, number, name));
}

Result<std::optional<Step>> latest_step(const std::string& root, const std::optional<StepNames>& names) {
  SHARDWRIGHT_ASSIGN(auto found, list_step_names(root, names));
  for (size_t i = found.size(); i-- > 0;) {
    Step step = look_at_step(root, found[i].first, found[i].second);
    if (step.complete) return std::optional(std::move(step));
    if (step.trouble)
      return std::move(*step.trouble)
          .with_hint("make it readable, or move the step away; until then the newest step is unknown");
  }
  return std::optional<Step>();
}

Result<std::optional<Step>> best_step(const std::string& root, const std::optional<StepNames>& names,
                                      const std::string& metric, bool max) {
  SHARDWRIGHT_ASSIGN(auto steps, each_step(root, names, facts_of_step));
  while (auto best = best_step(facts_of(steps), metric, max)) {
    auto at = std::ranges::find_if(steps, [&](const Step& step) { return step.facts.step == *best; });
    prove(root, *at);
    if (at->complete) return std::optional(std::move(*at));
    steps.erase(at);
  }
  return std::optional<Step>();
}

Result<Step> complete_step(const std::string& root, const std::optional<StepNames>& names,
                           std::optional<uint64_t> number) {
  SHARDWRIGHT_ASSIGN(auto step, number ? read_step(root, names, *number) : latest_step(root, names));
  if (!step)
    return no_step(root, names, number ? fmt::format("there is no step {}", *number) : "there is no complete step");
  if (step->trouble) return std::move(*step->trouble);
  if (!step->complete)
    return fail(Code::kCorrupt, fmt::format("step {} is not complete: {}", *number, step->proof))
        .at_path(root + "/" + step->name);
  return std::move(*step);
}

Result<StepPath> find_step(const std::string& text) {
  std::error_code error;
  size_t at = fs::is_directory(text, error) ? std::string::npos : text.rfind('@');
  std::string root = text.substr(0, at), which = at == std::string::npos ? "" : text.substr(at + 1);
  if (!fs::is_directory(root, error)) return fail(Code::kNotFound, "no such directory").at_path(root);
  SHARDWRIGHT_ASSIGN(auto step, choose_step(root, which));
  return StepPath{std::move(root), std::move(step)};
}

Status remove_step(const std::string& root, const std::string& name) {
  static std::random_device random;
  std::string trash = fmt::format("{}/{}{}.{:08x}", root, kTrash, name, random());
  SHARDWRIGHT_TRY(detail::move_directory(root + "/" + name, trash));
  SHARDWRIGHT_TRY(detail::remove_file(root + "/" + std::string(kPins) + "/" + name));
  return detail::remove_tree(trash);
}

Status pin_step(const std::string& root, const std::string& name, bool pinned) {
  std::error_code error;
  if (!fs::is_directory(fs::path(root) / name, error))
    return fail(Code::kNotFound, "there is no such step").at_path(root + "/" + name);
  std::string pins = root + "/" + std::string(kPins);
  if (!pinned) return detail::remove_file(pins + "/" + name);
  SHARDWRIGHT_TRY(detail::make_directories(pins));
  std::ofstream mark(pins + "/" + name);
  mark.close();
  if (!mark) return errno_error(errno, "cannot make", pins + "/" + name);
  return detail::sync_directory(pins);
}

Result<Forgotten> forget_steps(const std::string& root, const std::optional<StepNames>& names,
                               const Retention& retention, const ForgetOptions& options) {
  SHARDWRIGHT_TRY(retention.check());
  SHARDWRIGHT_ASSIGN(auto steps, each_step(root, names, facts_of_step));
  Forgotten out = judge(root, std::move(steps), retention, options.lean);
  for (size_t i = 0; i < out.steps.size() && !options.dry_run; ++i) {
    if (out.verdicts[i].keep()) continue;
    auto removed = remove_step(root, out.steps[i].name);
    if (removed.ok()) continue;
    uint64_t step = out.steps[i].facts.step;
    removed.error().message = fmt::format("step {} could not be removed: {}", step, removed.error().message);
    out.failures.emplace(step, std::move(removed.error()));
  }
  return out;
}

}  // namespace shardwright
