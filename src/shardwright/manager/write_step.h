/// One step, written so that it appears whole or not at all.
#pragma once

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
  std::optional<uint64_t> max_shard_bytes{};                    ///< none: 5 GB where the format has shards
  std::vector<std::pair<std::string, std::string>> settings{};  ///< WriteOptions::settings
  /// Further files, by their keys in the step: "metrics/metrics", "iterator/process_0-of-1.json", "state/shardwright.tree.json". A directory of
  /// them with a `_METADATA` is an item too, a tree as Orbax keeps it.
  std::vector<std::pair<std::string, std::string>> files{};
  Json metadata = Json::object();  ///< the user's, in _CHECKPOINT_METADATA
};

/// What to do when the step, or a later one, is there already.
struct StepConflict {
  bool replace = false;  ///< an existing step is replaced; else kAlreadyExists
  bool branch = false;   ///< it, when it is there, and later ones move to ROOT/.branches/<n>/; else kAlreadyExists
};
/// Checks without writing; what write_step() would refuse for what is there.
Status check_conflict(const std::string& root, const StepNames& names, uint64_t step, const StepConflict& conflict);

struct WrittenStep {
  uint64_t step = 0, bytes = 0, tensors = 0, peak_memory_bytes = 0;
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

}  // namespace shardwright
