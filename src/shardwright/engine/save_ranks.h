/// Saving what lies in the memories of several ranks.
#pragma once

#include <functional>

#include "shardwright/base/json.h"
#include "shardwright/engine/box_hashes.h"
#include "shardwright/engine/jobs.h"

namespace shardwright {

/// Writes the objects of a draft, all but what seal() makes, into a transaction that has begun. format, options: what the draft was made by; it may be
/// a part of that.
using Fill = std::function<Result<Executed>(Draft& draft, const Format& format, const WriteOptions& options,
                                            Transaction& transaction)>;

/// save_tensors() with the writing done by `fill`; defined where that is. tensors: as merge_catalogs() makes them, of so many ranks.
Result<CopySummary> save_filled(const Catalog& tensors, int ranks, const CopyRequest& request,
                                const JobOptions& options, const Fill& fill);

/// What one rank brings to a save by all, whatever is made of it.
struct SharedSave {
  const Catalog& tensors;  ///< of which this rank has something
  const Calls& calls;      ///< produce
  Json request;            ///< all that every rank must ask for alike, by names that users know
  Selection select{};
  bool strict = false;  ///< this and the next: of WriteOptions
  std::vector<std::pair<std::string, std::string>> settings{};
  std::optional<LayoutMap> layout{};
  std::string directory{};  ///< which all must see, with the transaction in it; empty: the transaction alone
  bool hash = false;        ///< what is held is hashed
  Bytes extra{};            ///< for rank 0
  /// What keeps this rank from going on, as when it has no time left; asked for whenever the ranks agree on something, and then everybody's failure.
  std::function<Status()> own{};
};
/// What all ranks brought.
struct Gathered {
  Catalog tensors;                            ///< as merge_catalogs() makes them
  std::vector<std::vector<HashedBox>> boxes;  ///< of each tensor, by whom it is written; empty unless asked for
  std::vector<Bytes> extras;
};
struct SharedOutcome {
  Bytes told;                  ///< what lead() returned
  uint64_t written_bytes = 0;  ///< of tensors, by this rank
};
/// lead: on rank 0 only: checks what is there, begins a transaction, calls fill once, and commits. What it returns, or its error, is every rank's.
/// The other ranks must see the transaction: else kNotFound, before anything is written. Collective; see save_tensors() with a Comm.
Result<SharedOutcome> save_together(const SharedSave& save, const JobOptions& options, Comm& comm,
                                    const std::function<Result<Bytes>(const Gathered& all, const Fill& fill)>& lead);

}  // namespace shardwright
