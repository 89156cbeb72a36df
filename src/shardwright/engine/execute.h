/// Runs a plan inside a hard byte budget.
#pragma once

#include <functional>
#include <vector>

#include "shardwright/base/memory_budget.h"
#include "shardwright/engine/plan.h"

namespace shardwright {

/// Run on the thread that called execute(), one at a time. Boxes of one tensor come together, each once: in C order, or, where the target is in
/// chunks or pieces, one after the other, each in C order.
struct Calls {
  /// Fill `into` with the box, C order, source dtype. For kCall pieces of the source.
  std::function<Status(TensorId from, const Box& box, MutableView into)> produce{};
  /// `values`: the box, C order, target dtype; the view dies on return. For kCall pieces of the target.
  std::function<Status(TensorId to, const Box& box, View values)> consume{};
  /// All elements of a piece of the target (that has any) are in their place, or were consumed. Pieces come as they are done.
  std::function<Status(TensorId to, uint32_t piece)> filled{};
  /// About 10 times a second: false stops the run with kAborted.
  std::function<bool(uint64_t bytes_done, uint64_t bytes_total)> keep_going{};
};

struct Ends {
  Store* from = nullptr;   ///< null where the source is memory or calls
  Draft* draft = nullptr;  ///< null where the target is memory or calls
  Transaction* into = nullptr;
};

struct Executed {
  std::vector<Receipt> receipts;  ///< files: in object and segment order
  uint64_t peak_bytes = 0;        ///< of the budget
};

/// Budget is granted whole per task, in plan order: nothing can hang (see MemoryBudget). First error (the lowest in plan order of those
/// that happened) ends the run; the transaction is then not committed by the caller. Every object written is finished (durable).
Result<Executed> execute(const Plan& plan, const Ends& ends, const Calls& calls);

}  // namespace shardwright
