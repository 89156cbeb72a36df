/// The steps of a run on disk: which there are, which are whole, and what broken runs left beside them.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardwright/base/json.h"
#include "shardwright/manager/retention.h"
#include "shardwright/manager/step_name.h"

namespace shardwright {

struct Step {
  StepFacts facts;
  std::string name;                ///< of its directory, below the root
  bool complete = false;           ///< proved, see prove_step()
  std::optional<Error> trouble{};  ///< why nobody can tell, see StepProof
  std::string proof;               ///< by what; or what is missing
  uint64_t bytes = 0;              ///< of its files
  uint64_t shared_bytes = 0;       ///< of those, what other names have too (hard links)
  Json metadata = Json::object();  ///< what the user gave with it
};

/// Whether the directory of a step is a checkpoint that was saved to its end, and how that is known. By its own manifest, when it has one: every
/// file in it is there and as long as it says. Else, as other programs write them: it is marked as committed (a time of commit, or
/// commit_success.txt), nothing in it has a temporary name, and every tree of arrays in it opens, which holds all its files against its metadata.
/// An empty directory is no step, whatever its name. Values are not read.
/// Only what the system says is not there is missing. Of a step that cannot be looked at (not permitted, a stale handle, a failing disk) nobody can
/// tell: it is not complete, and has `trouble`; it is never removed or replaced but by force.
struct StepProof {
  bool complete = false;
  std::string text;
  std::optional<Error> trouble{};
};
StepProof prove_step(const std::string& directory);
namespace detail {
struct TreeFacts;
StepProof prove_step(const std::string& directory, const TreeFacts& tree);  ///< by one who has looked at all in it
}  // namespace detail

/// By what a directory shows whether it is, or was to become, a step of this library or of Orbax: its own files, without a look into them.
enum class Marks : uint8_t {
  kNone,      ///< somebody's files; also what cannot be listed
  kEmpty,     ///< nothing in it
  kBegun,     ///< `_CHECKPOINT_METADATA`, a tree of arrays, or a temporary name
  kFinished,  ///< it was a step: a manifest of ours, or a mark of its commit
};
Marks marks_of(const std::string& directory);

/// How the steps of a run are called whose names nobody gives: the prefix and padding of most of its finished steps; of equals plain numbers, then
/// those of the highest step. Everything else is not of the run: "backup_7", "logs_1".
Result<StepNames> names_of_run(const std::string& root);

/// By ascending number, each proved, which takes a look at each of its files. names: how they are called; none: names_of_run(). Not an error: no such
/// directory.
Result<std::vector<Step>> list_steps(const std::string& root, const std::optional<StepNames>& names);
/// Numbers and names only, without a look into the directories.
Result<std::vector<std::pair<uint64_t, std::string>>> list_step_names(const std::string& root,
                                                                      const std::optional<StepNames>& names);

/// One step, the only one that is looked at; nullopt: no directory has its name.
Result<std::optional<Step>> read_step(const std::string& root, const std::optional<StepNames>& names, uint64_t number);
/// The newest one that is proved complete; nullopt when there is none. What is older is not looked at. Fails with the trouble of a newer step: nobody goes
/// on from an older one by mistake.
Result<std::optional<Step>> latest_step(const std::string& root, const std::optional<StepNames>& names);
/// A step that is to be used, the newest where none is named. Errors: kNotFound, saying which there are; kCorrupt for one that is not complete.
Result<Step> complete_step(const std::string& root, const std::optional<StepNames>& names,
                           std::optional<uint64_t> number = {});
/// The best one by a metric, of equals the newest, proved complete; nullopt when none has the metric. Of others only the metrics are read.
Result<std::optional<Step>> best_step(const std::string& root, const std::optional<StepNames>& names,
                                      const std::string& metric, bool max);
/// "ROOT", "ROOT@100", "ROOT@latest", "ROOT@best:loss", "ROOT@best:accuracy:max" -> its step. A directory that has the whole text as its name is
/// meant by it. Errors: kNotFound naming the steps that are there.
struct StepPath {
  std::string root;
  Step step;
};
Result<StepPath> find_step(const std::string& text);

/// What to open for the tensors of a step: its item of this name, or, when it has none such, Keras's "pytree", or its only one; the step itself when
/// it has several, or is one tree. Errors: kNotFound.
Result<std::string> tensors_of_step(const std::string& directory, const std::string& item = "state");

/// What is no step, and was to become or has been one.
struct Leftover {
  std::string name;     ///< below the root
  std::string what;     ///< "an unfinished save of step 5"
  bool broken = false;  ///< it has the name of a step, but is not complete
  bool live = false;    ///< a process that is at it holds its lock, or it changed not long ago: not to be touched
  uint64_t bytes = 0;
};
/// Only what carries a name or marks of this library or of Orbax, and belongs to the run, is one.
/// age: what carries no lock (of other programs, and steps that are not complete) counts as live until nothing in it has changed for so long; of a step
/// that was finished once a minute is enough. What managers make lives with the one that has the claim (see claim.h). claimed: that is the caller.
Result<std::vector<Leftover>> list_leftovers(const std::string& root, const std::optional<StepNames>& names,
                                             std::chrono::seconds age, bool claimed = false);
struct PruneOptions {
  std::chrono::seconds age{3600};
  bool branches = true;  ///< what ROOT/.branches holds goes too
  bool broken = true;    ///< and what has a step's name, but is not complete
  bool dry_run = false;
  bool claimed = false;  ///< the caller has the claim
  bool lenient =
      false;  ///< what cannot be removed stays for the next time, without an error; it is returned all the same
};
/// Removes those that are not live, finishes what can be finished (see write_step); returns what was removed. dry_run: only says so.
Result<std::vector<Leftover>> prune_steps(const std::string& root, const std::optional<StepNames>& names,
                                          const PruneOptions& options);

/// Takes a step away: out of sight by one rename, then its files.
Status remove_step(const std::string& root, const std::string& name);
/// Never removed by a rule, from now on or no more. Kept in ROOT/.pinned.
Status pin_step(const std::string& root, const std::string& name, bool pinned);

struct ForgetOptions {
  bool dry_run = false;
  /// A step that stays whatever the others are (pinned, a multiple, ...) is not proved, and has no sizes: after each save of a long run that is
  /// most of them.
  bool lean = false;
};
struct Forgotten {
  std::vector<Step> steps;        ///< the complete ones, then those of which nobody can tell
  std::vector<Verdict> verdicts;  ///< as `steps`
  /// Of removals, by step: it stays, or some of its files do, which prune_steps() removes.
  std::map<uint64_t, Error> failures{};
};
/// Applies rules to the complete steps, and removes what none keeps, the oldest first. A step of which nobody can tell stays.
Result<Forgotten> forget_steps(const std::string& root, const std::optional<StepNames>& names,
                               const Retention& retention, const ForgetOptions& options = {});

}  // namespace shardwright
