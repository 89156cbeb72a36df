#include "shardwright/manager/steps.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

#include "shardwright/manager/step_files.h"
#include "shardwright/manager/tree_files.h"
#include "shardwright/store/directory.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

/// Any prefix, any padding: "ckpt_000005" is step 5.
std::optional<uint64_t> step_of_any(std::string_view name) {
  if (name.empty() || name[0] == '.') return std::nullopt;
  size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == name.size() || (digits > 0 && name[digits - 1] != '_') || digits == 1) return std::nullopt;
  uint64_t step = 0;
  auto [end, problem] = std::from_chars(name.data() + digits, name.data() + name.size(), step);
  return problem == std::errc() ? std::optional(step) : std::nullopt;
}

Step look_at_step(const std::string& root, uint64_t number, const std::string& name) {
  Step step;
  step.facts.step = number;
  step.name = name;
  std::string directory = root + "/" + name;
  auto proof = prove_step(directory);
  step.complete = proof.complete;
  step.proof = std::move(proof.text);
  auto files = detail::look_at_tree(directory);
  step.bytes = files.bytes;
  step.shared_bytes = files.shared_bytes;
  step.facts.time_ns = files.newest_ns;
  auto metadata = read_step_metadata(directory);
  if (metadata.ok()) {
    if (metadata->commit_ns != 0) step.facts.time_ns = metadata->commit_ns;
    step.metadata = std::move(metadata->custom);
  }
  step.facts.metrics = read_step_metrics(directory);
  std::error_code error;
  step.facts.pinned = fs::exists(fs::path(root) / kPins / name, error);
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
    if (!found->complete)
      return fail(Code::kCorrupt, fmt::format("step {} is not complete: {}", number, found->proof))
          .at_path(root + "/" + found->name);
    return std::move(*found);
  };
  std::vector<StepFacts> complete;
  for (const auto& step : steps)
    if (step.complete) complete.push_back(step.facts);
  if (complete.empty()) return no_step(root, "there is no complete step", steps);
  if (which.empty() || which == "latest") return take(complete.back().step);
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

Result<std::vector<std::pair<uint64_t, std::string>>> list_step_names(const std::string& root,
                                                                      const std::optional<StepNames>& names) {
  std::vector<std::pair<uint64_t, std::string>> out;
  SHARDWRIGHT_ASSIGN(auto entries, detail::names_in(root));
  for (auto& name : entries) {
    auto number = names ? names->step_of(name) : step_of_any(name);
    struct stat info;
    if (!number || ::stat((root + "/" + name).c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    out.emplace_back(*number, std::move(name));
  }
  std::ranges::sort(out);
  for (size_t i = 1; i < out.size(); ++i)
    if (out[i].first == out[i - 1].first)
      return fail(Code::kCorrupt, "two directories are the same step")
          .at_path(root)
          .with_found(fmt::format("'{}' and '{}'", out[i - 1].second, out[i].second));
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
  for (size_t i = 0; i < out.steps.size() && !dry_run; ++i)
    if (!out.verdicts[i].keep()) SHARDWRIGHT_TRY(remove_step(root, out.steps[i].name));
  return out;
}

}  // namespace shardwright
