// What broken runs leave beside the steps.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "shardwright/manager/steps.h"
#include "shardwright/manager/tree_files.h"
#include "shardwright/store/directory.h"
#include "shardwright/store/staging.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

bool changed_within(const detail::TreeFacts& facts, seconds age) {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  auto then = std::chrono::nanoseconds(facts.newest_ns);
  return now - then < age;
}

/// The step that a staging of ours is to become: ".5.shardwright-1-0123456789abcdef" -> "5"; nullopt for other names.
std::optional<std::string> staged_step(const std::string& name) {
  size_t at = name.rfind(detail::kStagingPrefix);
  if (at == name.npos || at < 2 || name[0] != '.') return std::nullopt;
  if (!detail::is_staging_id(std::string_view(name).substr(at + detail::kStagingPrefix.size()))) return std::nullopt;
  std::string step = name.substr(1, at - 1);
  return step.starts_with(kFresh) ? step.substr(kFresh.size()) : step;
}

/// What an entry of the root is, when it is no step.
std::optional<Leftover> leftover_of(const std::string& root, const std::string& name, seconds age) {
  std::string path = root + "/" + name;
  auto facts = detail::look_at_tree(path);
  Leftover out{name, "", false, changed_within(facts, age), facts.bytes};
  auto rest = [&](std::string_view prefix) { return name.substr(prefix.size()); };
  if (auto step = staged_step(name)) {
    out.what = fmt::format("an unfinished save of step {}", *step);
    auto dead = detail::Staging::adopt(path);
    out.live = dead.ok() && !*dead && detail::Staging::is_owned(path);
  } else if (size_t at = name.find(kTemporarySuffix); at != name.npos && at > 0) {
    out.what = fmt::format("an unfinished save of step {}, by Orbax", name.substr(0, at));
  } else if (name.starts_with(kTrash)) {
    out.what = fmt::format("a step that was being removed, {}", rest(kTrash).substr(0, rest(kTrash).rfind('.')));
    out.live = false;
  } else if (name.starts_with(kFresh)) {
    out.what = fmt::format("a save of step {} that never took its place", rest(kFresh));
  } else if (name.starts_with(kReplaced)) {
    out.what = fmt::format("what step {} was before it was replaced", rest(kReplaced));
  } else if (name == kBranches) {
    out.what = "steps that were set aside when a run went on from an earlier one";
    out.live = false;
  } else {
    return std::nullopt;
  }
  return out;
}

/// A replacement in two renames, on a file system that cannot exchange two names, was stopped between them: the new step takes its place; where there
/// is none, the old one goes back.
Status finish_replacements(const std::string& root) {
  SHARDWRIGHT_ASSIGN(auto entries, detail::names_in(root));
  for (const auto& entry : entries) {
    if (!entry.starts_with(kReplaced)) continue;
    std::string name = entry.substr(kReplaced.size()), fresh = root + "/" + std::string(kFresh) + name;
    std::error_code error;
    if (fs::exists(fs::path(root) / name, error)) continue;
    SHARDWRIGHT_TRY(detail::move_directory(fs::exists(fresh, error) ? fresh : root + "/" + entry, root + "/" + name));
  }
  return {};
}

Status remove_leftover(const std::string& root, const std::string& name) {
  std::string path = root + "/" + name;
  if (!staged_step(name)) return detail::remove_tree(path);
  SHARDWRIGHT_ASSIGN(auto staging, detail::Staging::adopt(path));
  return staging ? staging->remove() : detail::remove_tree(path);
}

}  // namespace

Result<std::vector<Leftover>> list_leftovers(const std::string& root, const std::optional<StepNames>& names,
                                             seconds age) {
  std::vector<Leftover> out;
  SHARDWRIGHT_ASSIGN(auto entries, detail::names_in(root));
  std::ranges::sort(entries);
  for (const auto& name : entries)
    if (auto leftover = leftover_of(root, name, age)) out.push_back(std::move(*leftover));
  SHARDWRIGHT_ASSIGN(auto steps, list_step_names(root, names));
  for (const auto& [number, name] : steps) {
    auto proof = prove_step(root + "/" + name);
    if (proof.complete) continue;
    auto facts = detail::look_at_tree(root + "/" + name);
    out.push_back({name, fmt::format("step {}, not complete: {}", number, proof.text), true, changed_within(facts, age),
                   facts.bytes});
  }
  return out;
}

Result<std::vector<Leftover>> prune_steps(const std::string& root, const std::optional<StepNames>& names,
                                          const PruneOptions& options) {
  if (!options.dry_run) SHARDWRIGHT_TRY(finish_replacements(root));
  SHARDWRIGHT_ASSIGN(auto found, list_leftovers(root, names, options.age));
  std::erase_if(found, [&](const Leftover& leftover) {
    return leftover.live || (leftover.name == kBranches && !options.branches) || (leftover.broken && !options.broken);
  });
  for (const auto& leftover : found)
    if (!options.dry_run) SHARDWRIGHT_TRY(remove_leftover(root, leftover.name));
  return found;
}

}  // namespace shardwright
