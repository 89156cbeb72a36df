/// One step, written so that it appears whole or not at all.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/engine/jobs.h"
#include "shardwright/manager/steps.h"

namespace shardwright {

/// What a step is made of.
struct StepContent {
  uint64_t step = 0;
  /// The tensors, and how they are written: a checkpoint of its own in the directory `item`, in any format that can be written. tensors outlive
  /// the call.
  std::string item = "state", format = "orbax";
  Catalog tensors{};
  Calls calls{};
  std::optional<uint64_t> max_shard_bytes{};  ///< none: 5 GB where the format has shards, 1 MiB of incremental steps
  std::vector<std::pair<std::string, std::string>> settings{};  ///< WriteOptions::settings
  /// Further files, by their keys in the step: "metrics/metrics", "iterator/process_0-of-1.json", "state/shardwright.tree.json". A directory of
  /// them with a `_METADATA` is an item too, a tree as Orbax keeps it.
  std::vector<std::pair<std::string, std::string>> files{};
  Json metadata = Json::object();  ///< the user's, in _CHECKPOINT_METADATA
  /// A file that would be byte for byte one of the newest complete step is not written: it becomes a hard link to that. So it is for every file of
  /// which no tensor has changed (by ContentHash of what each rank writes; another layout over ranks is a change), in a step of the same format,
  /// settings and item that was written like this too; a file that holds one that has changed is written whole. Where the format has shards they are
  /// of 1 MiB, or one larger tensor: so what stays shares no file with what changes, but for small tensors. What calls make is always written.
  /// No file of a step is ever written again, only removed by name: each step stays whole whatever becomes of others, and where the file system
  /// refuses a link the file is written.
  bool incremental = false;
};

/// What to do when the step, or a later one, is there already.
struct StepConflict {
  bool replace = false;  ///< whatever has its name is replaced; else kAlreadyExists, but for what the next lines say
  bool branch = false;   ///< it, when it is there, and later ones move to ROOT/.branches/<n>/; else kAlreadyExists
};
/// A directory of the step's name that was a step or was to become one, is proved not complete, and at which nobody is (it was finished once, is empty,
/// or has not changed for an hour) is in nobody's way: it moves to ROOT/.branches/<n>/ when the new one is written, with a warning. Where nobody can
/// tell (see StepProof), of this step or a later one, that is the error.
/// Checks without writing; what write_step() would refuse for what is there.
Status check_conflict(const std::string& root, const StepNames& names, uint64_t step, const StepConflict& conflict);

struct WrittenStep {
  uint64_t step = 0, bytes = 0, tensors = 0, peak_memory_bytes = 0;
  uint64_t own_bytes = 0;     ///< values of tensors that this process wrote
  uint64_t linked_bytes = 0;  ///< of `bytes`, in files that the step before has too
  std::string name;
  double seconds = 0;
  std::vector<std::string> warnings{};
};
/// Writes ROOT/<step>/ and makes it visible by one rename, durable before: `item`/, the files, _CHECKPOINT_METADATA, shardwright.manifest.json,
/// commit_success.txt. A step that is replaced changes places with the new one in one step where the file system can (else there is a moment
/// in which it has neither; prune() finishes what a crash leaves then). Nothing is written before everything that can be refused is checked.
/// Errors: kAlreadyExists (see StepConflict), kResourceExhausted, those of formats, engine and stores. Then the step is not there, and what it
/// left is gone.
Result<WrittenStep> write_step(const std::string& root, const StepNames& names, const StepContent& content,
                               const StepConflict& conflict, const JobOptions& options);

/// The same by all ranks together, with what save_tensors() with a Comm says: content.tensors are those of which this rank has something; every
/// box is written once; rank 0 commits when all have written. The rest of the content must be the same on all, but for what rank 0 alone gives
/// (metadata), and for the files: those of the lowest rank that gives a key ("iterator/process_1-of-2.json" by rank 1).
/// own: what keeps this rank from going on, as when it has no time left: asked for whenever the ranks agree on something. Then all fail with it, and may
/// save again.
/// Collective. The outcome is the same on every rank but own_bytes, seconds and memory. Errors: those above, and of save_tensors(): kUnavailable
/// with the ranks that are missing; kNotFound when a rank does not see the root that rank 0 writes to. Then the step is not there.
Result<WrittenStep> write_step(const std::string& root, const StepNames& names, const StepContent& content,
                               const StepConflict& conflict, const JobOptions& options, Comm& comm,
                               const std::function<Status()>& own = {});

}  // namespace shardwright
