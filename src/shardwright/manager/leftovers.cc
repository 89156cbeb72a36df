// What broken runs leave beside the steps.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "shardwright/manager/claim.h"
#include "shardwright/manager/steps.h"
#include "shardwright/manager/tree_files.h"
#include "shardwright/store/directory.h"
#include "shardwright/store/staging.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

/// The step that a staging of ours is to become: ".5.shardwright-1-0123456789abcdef" -> "5"; nullopt for other names.
std::optional<std::string> staged_step(const std::string& name) {
  size_t at = name.rfind(detail::kStagingPrefix);
  if (at == name.npos || at < 2 || name[0] != '.') return std::nullopt;
  if (!detail::is_staging_id(std::string_view(name).substr(at + detail::kStagingPrefix.size()))) return std::nullopt;
  std::string step = name.substr(1, at - 1);
  return step.starts_with(kFresh) ? step.substr(kFresh.size()) : step;
}

/// "5.orbax-checkpoint-tmp" and "5.orbax-checkpoint-tmp-1718" -> "5".
std::optional<std::string> orbax_step(const std::string& name) {
  size_t at = name.find(kTemporarySuffix);
  if (at == name.npos) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(at + kTemporarySuffix.size());
  bool counted = rest.size() > 1 && rest[0] == '-' && rest.find_first_not_of("0123456789", 1) == rest.npos;
  if (!rest.empty() && !counted) return std::nullopt;
  return name.substr(0, at);
}

/// ".trash.5.0123abcd" -> "5", as remove_step() names it.
std::optional<std::string> removed_step(const std::string& name) {
  size_t dot = name.rfind('.');
  if (!name.starts_with(kTrash) || dot < kTrash.size() || name.size() - dot - 1 != 8) return std::nullopt;
  if (name.find_first_not_of("0123456789abcdef", dot + 1) != name.npos) return std::nullopt;
  return name.substr(kTrash.size(), dot - kTrash.size());
}

/// No save is under way to what was finished once; one who copies it changes something in a minute.
constexpr seconds kCopied{60};

/// Who looks, and what is known of who writes.
struct Look {
  const std::string& root;
  StepNames names;
  seconds age;
  std::optional<bool> written;  ///< by a living manager; nullopt: nobody can tell
};

/// What an entry of the root is, when it is no step.
std::optional<Leftover> leftover_of(const Look& look, const std::string& name) {
  std::string path = look.root + "/" + name;
  auto facts = detail::look_at_tree(path);
  bool recent = facts.changed_within(look.age);
  auto of = [&](const std::optional<std::string>& step) { return step && look.names.step_of(*step).has_value(); };
  auto after = [&](std::string_view prefix) {
    return name.starts_with(prefix) ? std::optional(name.substr(prefix.size())) : std::nullopt;
  };
  auto leftover = [&](std::string what, bool live) {
    return std::optional(Leftover{name, std::move(what), false, live, facts.bytes});
  };
  const bool written = look.written.value_or(recent);
  if (auto unfinished = staged_step(name); of(unfinished)) {
    auto dead = detail::Staging::adopt(path);
    bool live = dead.ok() && !*dead && detail::Staging::is_owned(path);
    return leftover(fmt::format("an unfinished save of step {}", *unfinished), live);
  }
  if (auto theirs = orbax_step(name); of(theirs))
    return leftover(fmt::format("an unfinished save of step {}, by Orbax", *theirs), recent);
  if (auto removed = removed_step(name); of(removed))
    return leftover(fmt::format("a step that was being removed, {}", *removed), false);
  if (auto fresh = after(kFresh); of(fresh))
    return leftover(fmt::format("a save of step {} that never took its place", *fresh), written);
  if (auto old = after(kReplaced); of(old))
    return leftover(fmt::format("what step {} was before it was replaced", *old), written);
  if (name == kBranches) return leftover("steps that were set aside", false);
  return std::nullopt;
}

/// What has the name of a step and its marks, but lacks something. Copies by other tools look like that too, while they are made.
std::optional<Leftover> broken_step(const Look& look, const std::string& name, uint64_t number) {
  std::string path = look.root + "/" + name;
  Marks marks = marks_of(path);
  if (marks == Marks::kNone || marks == Marks::kEmpty) return std::nullopt;
  auto proof = prove_step(path);
  if (proof.complete || proof.trouble) return std::nullopt;
  auto facts = detail::look_at_tree(path);
  return Leftover{name, fmt::format("step {}, not complete: {}", number, proof.text), true,
                  facts.changed_within(marks == Marks::kFinished ? std::min(look.age, kCopied) : look.age),
                  facts.bytes};
}

/// A replacement in two renames, on a file system that cannot exchange two names, was stopped between them: the new step takes its place; where there
/// is none, the old one goes back.
Status finish_replacements(const std::string& root, const StepNames& names) {
  SHARDWRIGHT_ASSIGN(auto entries, detail::names_in(root));
  for (const auto& entry : entries) {
    if (!entry.starts_with(kReplaced)) continue;
    std::string name = entry.substr(kReplaced.size()), fresh = root + "/" + std::string(kFresh) + name;
    std::error_code error;
    if (!names.step_of(name) || fs::exists(fs::path(root) / name, error)) continue;
    bool whole = fs::exists(fresh, error);
    if (error && !detail::means_missing(error.value())) return errno_error(error.value(), "cannot look at", fresh);
    SHARDWRIGHT_TRY(detail::move_to_free_name(whole ? fresh : root + "/" + entry, root + "/" + name));
  }
  return {};
}

Status remove_leftover(const std::string& root, const Leftover& leftover) {
  if (leftover.broken) return remove_step(root, leftover.name);
  std::string path = root + "/" + leftover.name;
  if (!staged_step(leftover.name)) return detail::remove_tree(path);
  SHARDWRIGHT_ASSIGN(auto staging, detail::Staging::adopt(path));
  return staging ? staging->remove() : detail::remove_tree(path);
}

Result<StepNames> names_or_found(const std::string& root, const std::optional<StepNames>& names) {
  return names ? Result<StepNames>(*names) : names_of_run(root);
}

/// broken: steps too, each of which is looked at for that.
Result<std::vector<Leftover>> list(const Look& look, bool broken) {
  std::vector<Leftover> out;
  SHARDWRIGHT_ASSIGN(auto entries, detail::names_in(look.root));
  std::ranges::sort(entries);
  for (const auto& name : entries)
    if (auto leftover = leftover_of(look, name)) out.push_back(std::move(*leftover));
  if (!broken) return out;
  SHARDWRIGHT_ASSIGN(auto steps, list_step_names(look.root, look.names));
  for (const auto& [number, name] : steps)
    if (auto leftover = broken_step(look, name, number)) out.push_back(std::move(*leftover));
  return out;
}

}  // namespace

Result<std::vector<Leftover>> list_leftovers(const std::string& root, const std::optional<StepNames>& names,
                                             seconds age, bool claimed) {
  SHARDWRIGHT_ASSIGN(auto run, names_or_found(root, names));
  return list({root, std::move(run), age, claimed ? std::optional(false) : Claim::is_held(root)}, /*broken=*/true);
}

Result<std::vector<Leftover>> prune_steps(const std::string& root, const std::optional<StepNames>& names,
                                          const PruneOptions& options) {
  SHARDWRIGHT_ASSIGN(auto run, names_or_found(root, names));
  Look look{root, std::move(run), options.age, options.claimed ? std::optional(false) : Claim::is_held(root)};
  std::unique_ptr<Claim> claim;  // nobody begins to write meanwhile
  if (!options.dry_run && !options.claimed && look.written == false) {
    auto taken = Claim::take(root, {});
    if (taken.ok()) claim = std::move(*taken);
    if (!claim) look.written = true;
  }
  if (!options.dry_run && look.written != true) SHARDWRIGHT_TRY(finish_replacements(root, look.names));
  SHARDWRIGHT_ASSIGN(auto found, list(look, options.broken));
  std::erase_if(found, [&](const Leftover& leftover) {
    return leftover.live || (leftover.name == kBranches && !options.branches);
  });
  for (const auto& leftover : found)
    if (auto removed = options.dry_run ? Status() : remove_leftover(root, leftover); !removed.ok() && !options.lenient)
      return removed.error();
  return found;
}

}  // namespace shardwright
