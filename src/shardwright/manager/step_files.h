/// The small files of a step, beside its items.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/base/json.h"
#include "shardwright/engine/manifest.h"

namespace shardwright {

inline constexpr std::string_view kMetricsFile = "metrics/metrics";
/// Cap on any of them that is read whole.
inline constexpr uint64_t kMaxStepFile = GiB;

/// `_CHECKPOINT_METADATA`. Not an error: there is none.
struct StepMetadata {
  bool present = false, committed = false;
  uint64_t commit_ns = 0;
  Json custom = Json::object();
};
Result<StepMetadata> read_step_metadata(const std::string& directory);
/// `metrics/metrics`: its numbers; empty when there is none, or it is no JSON.
Result<std::map<std::string, double>> read_step_metrics(const std::string& directory);

/// What our manifest of a step says: sizes of all files but itself and the mark that comes after it, and checksums of what items store.
///
///   {"version": 1, "checkpoints": {"<entry point of the item>": {"content": {}, "stored": [...]}},
///    "step": 5, "files": [{"file": "state/d/ab", "size": 12}]}
///
/// The first two members are those of any manifest (see engine/manifest.h), paths in them below the item. Incremental steps have "contents" too, as
/// last_step.h says.
struct StepManifest {
  uint64_t step = 0;
  std::vector<std::pair<std::string, uint64_t>> files;
  Json contents{};  ///< null: none
};
std::string step_manifest_text(const StepManifest& manifest, const std::string& entry,
                               const std::vector<StoredSum>& stored);
/// nullopt when there is none, or it is one of a checkpoint alone. Errors: kCorrupt.
Result<std::optional<StepManifest>> read_step_manifest(const std::string& directory);

}  // namespace shardwright
