/// A plan: which bytes go where, as data. Pure: printed, counted and tested without running.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shardwright/format/catalog.h"
#include "shardwright/format/format.h"

namespace shardwright {

struct PlanOptions {
  uint64_t memory_bytes = 256 * MiB;  ///< hard budget of execute()
  uint64_t part_bytes = 8 * MiB;      ///< aim for one task; lowered when the budget asks for it
  int threads = 0;                    ///< workers; 0 = as many as pay (2 to 4)
};

/// One target piece and where its values come from. Cut into parts on demand: part p is the sub-box of `cut`.
struct Move {
  TensorId from = kNoTensor;          ///< in the source catalogue; kNoTensor: a literal
  TensorId to = kNoTensor;            ///< in the target catalogue
  uint32_t piece = 0;                 ///< target piece; kAllPieces: every target piece that a part cuts (fan-out)
  uint32_t segment = 0;               ///< files: index in Draft::segments(object)
  uint64_t step = 0;                  ///< elements per part of a flat move; else extent of dimension `cut_dim` per part
  int32_t cut_dim = -1;               ///< -1: flat, both sides are whole, raw, C order: cut as one line of elements
  uint32_t parts = 1;
};
inline constexpr uint32_t kAllPieces = ~0u;

/// Moves in order. A lane is one target object (files), or everything (memory, calls): it has one writer at a time where there are
/// several lanes, and its appends are in order.
struct Lane {
  ObjectId object = 0;
  std::vector<Move> moves;
  std::vector<Segment> segments;
};

class Plan {
 public:
  struct Summary {
    uint64_t tensors = 0, objects = 0, parts = 0;
    uint64_t read_bytes = 0;      ///< source bytes wanted, re-reads included
    uint64_t written_bytes = 0;   ///< target bytes, literals included; late and sealed ones not
    uint64_t need_bytes = 0;      ///< most that one part needs; must fit the budget
    double reread = 1.0;          ///< read_bytes / distinct source bytes
  };
  Summary summary;
  /// XXH3-128 of sources, targets and options: equal plans, equal text.
  std::string fingerprint() const;

  Catalog from, to;
  PlanOptions options;
  std::vector<Lane> lanes;
};

/// Plan for writing a draft. origin[i]: source tensor of target tensor i. Values are converted where dtypes differ (the caller decided);
/// shapes must be equal. Errors: kUnsupported (no conversion, codec that must hold more than the budget), kResourceExhausted with the
/// number it needs.
Result<Plan> plan_write(const Catalog& from, const Draft& draft, std::span<const TensorId> origin, const PlanOptions& options);
/// Plan for loading into memory or calls (kMemory, kCall pieces): source order, one read for all boxes a part feeds.
Result<Plan> plan_load(const Catalog& from, const Catalog& to, std::span<const TensorId> origin, const PlanOptions& options);

}  // namespace shardwright
