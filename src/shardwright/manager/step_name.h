/// Names of steps: which directories of a run hold a checkpoint of which step. The grammar is Orbax's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwright/base/result.h"

namespace shardwright {

/// "<prefix>_<step>", or "<step>" alone; zero padded to `digits` where they are not 0. "100", "ckpt_000005".
struct StepNames {
  std::string prefix{};
  int digits = 0;

  /// Errors: kInvalidArgument for a prefix that is no plain name, or begins with '.'; for digits that are negative or over 20.
  Status check() const;
  std::string name_of(uint64_t step) const;
  /// nullopt for a name that is none of these. Numbers with more digits than are padded to are fine; leading zeros without padding are not.
  std::optional<uint64_t> step_of(std::string_view name) const;
};

/// Part of a name that says that somebody is, or was, writing there.
inline constexpr std::string_view kTemporarySuffix = ".orbax-checkpoint-tmp";
/// What this library keeps beside the steps. None of it is all digits, so nobody takes it for a step.
inline constexpr std::string_view kBranches = ".branches", kPins = ".pinned", kWriter = ".writer", kTrash = ".trash.",
                                  kFresh = ".new.", kReplaced = ".old.";

}  // namespace shardwright
