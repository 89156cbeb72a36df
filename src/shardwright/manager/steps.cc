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

/// What the rules go by is unknown: they must not judge it.
void doubt(Step& step, Error why) {
  if (!step.complete) return;
  step.complete = false;
  step.proof = "nobody can tell: " + why.text();
  step.trouble = std::move(why);
}

Step look_at_step(const std::string& root, uint64_t number, const std::string& name) {
  Step step;
  step.facts.step = number;
  step.name = name;
  std::string directory = root + "/" + name;
  auto proof = prove_step(directory);
  step.complete = proof.complete;
  step.proof = std::move(proof.text);
  step.trouble = std::move(proof.trouble);
  auto files = detail::look_at_tree(directory);
  step.bytes = files.bytes;
  step.shared_bytes = files.shared_bytes;
  step.facts.time_ns = files.newest_ns;
  auto metadata = read_step_metadata(directory);
  if (metadata.ok()) {
    if (metadata->commit_ns != 0) step.facts.time_ns = metadata->commit_ns;
    step.metadata = std::move(metadata->custom);
  }
  auto metrics = read_step_metrics(directory);
  if (metrics.ok()) {
    step.facts.metrics = std::move(*metrics);
  } else {
    doubt(step, std::move(metrics.error()));
  }
  std::error_code error;
  step.facts.pinned = fs::exists(fs::path(root) / kPins / name, error);
  if (error && !detail::means_missing(error.value()))
    doubt(step, errno_error(error.value(), "cannot look at", fmt::format("{}/{}/{}", root, kPins, name)));
  return step;
}

Error no_step(const std::string& root, const std::string& wanted, const std::vector<Step>& steps) {
  std::vector<std::string> there;
  for (const auto& step : steps)
    if (step.complete) there.push_back(std::to_string(step.facts.step));
  return fail(Code::kNotFound, wanted)
      .at_path(root)
      .with_hint(there.empty() ? "`shardwright steps` says what is there, and what it lacks"
                               : fmt::format("there are {}", fmt::join(there, ", ")));
}

/// What follows '@'.
Result<Step> choose_step(const std::string& root, const std::string& which, std::vector<Step> steps) {
  auto take = [&](uint64_t number) -> Result<Step> {
    auto found = std::ranges::find_if(steps, [&](const Step& step) { return step.facts.step == number; });
    if (found == steps.end()) return no_step(root, fmt::format("there is no step {}", number), steps);
    if (found->trouble) return *found->trouble;
    if (!found->complete)
      return fail(Code::kCorrupt, fmt::format("step {} is not complete: {}", number, found->proof))
          .at_path(root + "/" + found->name);
    return std::move(*found);
  };
  std::vector<StepFacts> complete;
  for (const auto& step : steps)
    if (step.complete) complete.push_back(step.facts);
  bool newest = which.empty() || which == "latest";
  for (size_t i = steps.size(); newest && i-- > 0;)
    if (steps[i].complete || steps[i].trouble) return take(steps[i].facts.step);
  if (complete.empty()) return no_step(root, "there is no complete step", steps);
  if (which.starts_with("best:")) {
    std::string metric = which.substr(5);
    bool max = metric.ends_with(":max");
    if (max || metric.ends_with(":min")) metric.resize(metric.size() - 4);
    auto best = best_step(complete, metric, max);
    if (!best) return no_step(root, fmt::format("no step has a metric '{}'", metric), steps);
    return take(*best);
  }
  uint64_t number = 0;
  auto [end, problem] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (problem != std::errc() || end != which.data() + which.size())
    return fail(Code::kInvalidArgument, "no such way to name a step")
        .with_found("@" + which)
        .with_expected("@NUMBER, @latest, or @best:METRIC[:max]");
  return take(number);
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
  SHARDWRIGHT_ASSIGN(auto found, list_step_names(root, names));
  std::vector<Step> steps;
  for (const auto& [number, name] : found) steps.push_back(look_at_step(root, number, name));
  return steps;
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

Result<StepPath> find_step(const std::string& text) {
  std::error_code error;
  size_t at = fs::is_directory(text, error) ? std::string::npos : text.rfind('@');
  std::string root = text.substr(0, at), which = at == std::string::npos ? "" : text.substr(at + 1);
  if (!fs::is_directory(root, error)) return fail(Code::kNotFound, "no such directory").at_path(root);
  SHARDWRIGHT_ASSIGN(auto steps, list_steps(root, std::nullopt));
  SHARDWRIGHT_ASSIGN(auto step, choose_step(root, which, std::move(steps)));
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
                               const Retention& retention, bool dry_run) {
  SHARDWRIGHT_TRY(retention.check());
  Forgotten out;
  SHARDWRIGHT_ASSIGN(auto steps, list_steps(root, names));
  std::vector<StepFacts> facts;
  for (auto& step : steps) {
    if (!step.complete) continue;
    facts.push_back(step.facts);
    out.steps.push_back(std::move(step));
  }
  out.verdicts = judge_steps(facts, retention);
  for (auto& step : steps) {
    if (!step.trouble) continue;
    out.verdicts.push_back({step.facts.step, {step.proof}});
    out.steps.push_back(std::move(step));
  }
  for (size_t i = 0; i < out.steps.size() && !dry_run; ++i)
    if (!out.verdicts[i].keep()) SHARDWRIGHT_TRY(remove_step(root, out.steps[i].name));
  return out;
}

}  // namespace shardwright
