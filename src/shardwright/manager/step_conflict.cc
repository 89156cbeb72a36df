// What is there already, and whether a step may be written in spite of it.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "shardwright/manager/tree_files.h"
#include "shardwright/manager/write_step.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

/// What was begun and changed not longer ago may be another program's save.
constexpr std::chrono::hours kUnderWay{1};

Error in_the_way(const std::string& path, uint64_t step, std::string what, std::string hint) {
  return fail(Code::kAlreadyExists, fmt::format("something else has the name of step {}", step))
      .at_path(path)
      .with_found(std::move(what))
      .with_hint(std::move(hint));
}

/// What has the name of the step: only what is proved to be a broken one, at which nobody is, may be set aside unasked.
Status check_replaceable(const std::string& path, uint64_t step) {
  std::error_code error;
  bool directory = fs::is_directory(path, error);
  if (!directory && (!error || detail::means_missing(error.value())))
    return in_the_way(path, step, "no directory", "move it away; or force replaces it");
  auto proof = prove_step(path);
  if (proof.trouble)
    return std::move(*proof.trouble)
        .within(fmt::format("while step {} was looked at, which is there already", step))
        .with_hint("make it readable, or move it away; force replaces it");
  if (proof.complete)
    return fail(Code::kAlreadyExists, fmt::format("step {} is there already", step))
        .at_path(path)
        .with_hint("force replaces it");
  switch (marks_of(path)) {
    case Marks::kFinished:
    case Marks::kEmpty: return {};
    case Marks::kNone:
      return in_the_way(path, step, "files that are no checkpoint", "move it away; or force replaces it");
    case Marks::kBegun: break;
  }
  if (!detail::look_at_tree(path).changed_within(kUnderWay)) return {};
  return in_the_way(path, step, proof.text + "; changed within the last hour",
                    "another program may be writing it: end that, and save with force");
}

}  // namespace

Status check_conflict(const std::string& root, const StepNames& names, uint64_t step, const StepConflict& conflict) {
  SHARDWRIGHT_TRY(names.check());
  std::error_code error;
  bool there = fs::exists(fs::symlink_status(root + "/" + names.name_of(step), error));
  if (there && !conflict.replace && !conflict.branch)
    SHARDWRIGHT_TRY(check_replaceable(root + "/" + names.name_of(step), step));
  // Replacing one step leaves the others alone.
  if ((there && conflict.replace) || conflict.branch) return {};
  SHARDWRIGHT_ASSIGN(auto steps, list_step_names(root, names));
  for (; !steps.empty() && steps.back().first > step; steps.pop_back()) {
    std::string path = root + "/" + steps.back().second;
    auto proof = prove_step(path);
    if (proof.trouble)
      return std::move(*proof.trouble).within(fmt::format("while later steps than {} were looked for", step));
    if (!proof.complete) continue;  // what a crash left says nothing
    return fail(Code::kAlreadyExists, fmt::format("a later step than {} is there already", step))
        .at_path(path)
        .with_found(fmt::format("step {}", steps.back().first))
        .with_hint("another directory for another run; or branch: later steps move to .branches");
  }
  return {};
}

}  // namespace shardwright
