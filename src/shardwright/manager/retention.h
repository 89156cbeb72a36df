/// Which steps are kept. Pure: no clock, no files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardwright/base/result.h"

namespace shardwright {

/// What a rule may look at.
struct StepFacts {
  uint64_t step = 0;
  uint64_t time_ns = 0;  ///< of its commit, since 1970
  bool pinned = false;
  std::map<std::string, double> metrics{};
};

/// A union: a step is kept when any rule keeps it. Without any rule all are.
struct Retention {
  std::optional<uint64_t> last{};         ///< newest n
  std::optional<uint64_t> every_steps{};  ///< multiples of n
  std::optional<uint64_t>
      every_seconds{};  ///< the first step, then each that is at least so much later than the one kept before it
  struct Best {
    std::string metric;
    uint64_t count = 1;
    bool max = false;  ///< the larger the better
    bool keep_missing =
        true;  ///< a step without the metric (or with NaN) is kept, as nobody can tell; else it is as bad as any
  };
  std::vector<Best> best{};
  std::vector<uint64_t> steps{};                      ///< these
  std::function<bool(const StepFacts&)> predicate{};  ///< those it is true for
  bool keeps_all() const;
  /// Errors: kInvalidArgument for a rule that keeps nothing (n = 0), or has no metric.
  Status check() const;
};

/// Whether a step stays, and every reason for it; none: no rule keeps it. counted: a reason takes other steps into account, so that they would be
/// judged otherwise if this one were none.
struct Verdict {
  uint64_t step = 0;
  std::vector<std::string> reasons{};
  bool counted = false;
  bool keep() const { return !reasons.empty(); }
};
/// Of complete steps, in any order: verdicts by ascending step. The newest, the pinned, and the best by every `best` rule are always kept.
/// Judging what was kept again keeps all of it, unless the predicate says otherwise. REQUIRES: retention.check().ok(), each step once.
std::vector<Verdict> judge_steps(std::span<const StepFacts> steps, const Retention& retention);

/// The best by a metric, of equals the newest; nullopt when no step has it.
std::optional<uint64_t> best_step(std::span<const StepFacts> steps, std::string_view metric, bool max);

}  // namespace shardwright
