#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "shardwright/base/text.h"
#include "shardwright/engine/cut.h"
#include "shardwright/engine/relayout.h"

namespace shardwright {
namespace {

constexpr uint64_t kLeastBudget = 64 * KiB;
/// Larger parts, and rounds, gain nothing; and a message of MPI has fewer than 2^31 bytes.
constexpr uint64_t kMostPart = 64 * MiB, kMostRound = GiB;

/// Distinct boxes, and which shards hold each.
using Holders = std::map<Box, std::vector<uint32_t>>;

Holders holders_of(std::span<const Shard> shards) {
  Holders holders;
  for (uint32_t i = 0; i < shards.size(); ++i)
    if (!shards[i].box.empty()) holders[shards[i].box].push_back(i);
  return holders;
}

class RelayoutPlanner {
 public:
  RelayoutPlanner(std::span<const RelayoutTensor> tensors, int ranks, uint64_t budget)
      : tensors_(tensors),
        budget_(std::min(budget, kMostRound)),
        part_(std::min(budget / 4, kMostPart)),
        now_(static_cast<size_t>(ranks)) {
    plan_.rank_sends.resize(static_cast<size_t>(ranks));
    plan_.rank_receives.resize(static_cast<size_t>(ranks));
  }

  Result<RelayoutPlan> run() {
    if (budget_ < kLeastBudget)
      return fail(Code::kResourceExhausted, "the memory budget is too small to move anything")
          .with_found(format_bytes(budget_))
          .with_expected("at least " + format_bytes(kLeastBudget));
    for (tensor_ = 0; tensor_ < tensors_.size(); ++tensor_) {
      auto status = add();
      if (!status.ok()) return std::move(status.error()).at_tensor(tensors_[tensor_].name);
      plan_.ready.push_back(plan_.rounds);
    }
    return std::move(plan_);
  }

 private:
  const RelayoutTensor& tensor() const { return tensors_[tensor_]; }
  uint64_t bytes_of(const Box& box) const { return box.elements() * tensor().element_bytes; }

  Status check() const {
    uint32_t size = tensor().element_bytes;
    if (size == 0 || size > 16 || (size & (size - 1)) != 0)
      return fail(Code::kInvalidArgument, "elements cannot have this size").with_found(fmt::format("{} bytes", size));
    for (auto* side : {&tensor().from, &tensor().to})
      for (const Shard& shard : *side) {
        if (!is_box(shard.box))
          return fail(Code::kInvalidArgument,
                      "the boxes of a tensor have different numbers of dimensions, or extents below 0");
        if (shard.rank < 0 || static_cast<size_t>(shard.rank) >= now_.size())
          return fail(Code::kInvalidArgument, "a shard is on a rank that does not exist")
              .with_found(fmt::format("rank {}", shard.rank))
              .with_expected(fmt::format("0 to {}", now_.size() - 1));
      }
    return {};
  }

  bool is_box(const Box& box) const {
    size_t rank = (tensor().from.empty() ? tensor().to : tensor().from).front().box.start.size();
    return box.start.size() == rank && box.extent.size() == rank &&
           std::ranges::all_of(box.extent, [](int64_t e) { return e >= 0; });
  }

  Status add() {
    SHARDWRIGHT_TRY(check());
    const auto sources = holders_of(tensor().from);
    // What one rank wants of one box, whichever of its devices.
    std::map<int32_t, Holders> wanted;
    for (uint32_t i = 0; i < tensor().to.size(); ++i)
      if (!tensor().to[i].box.empty()) wanted[tensor().to[i].rank][tensor().to[i].box].push_back(i);
    for (const auto& [rank, boxes] : wanted)
      for (const auto& [box, shards] : boxes) SHARDWRIGHT_TRY(fill(rank, box, shards, sources));
    return {};
  }

  Status fill(int32_t rank, const Box& box, const std::vector<uint32_t>& to, const Holders& sources) {
    uint64_t found = 0;
    for (const auto& [held, holders] : sources) {
      if (box.rank() > 0 && held.start[0] >= box.start[0] + box.extent[0]) break;  // sorted by it
      auto overlap = intersect(held, box);
      if (!overlap) continue;
      found += overlap->elements();
      auto here = [&](uint32_t i) { return tensor().from[i].rank == rank; };
      if (std::any_of(holders.begin(), holders.end(), here)) {
        copy(rank, *overlap, to, holders);
      } else {
        ship(rank, *overlap, to, holders);
      }
    }
    if (found == box.elements()) return {};
    return fail(Code::kInvalidArgument, "no rank holds all of a box that is wanted")
        .with_found(fmt::format("{} of {} elements", found, box.elements()))
        .with_expected(fmt::format("all of {}, or each once", box.text()));
  }

  void copy(int32_t rank, const Box& overlap, const std::vector<uint32_t>& to, const std::vector<uint32_t>& holders) {
    for (uint32_t target : to) {
      uint32_t nearest = ~0u;
      bool same_device = false;
      for (uint32_t source : holders) {
        if (tensor().from[source].rank != rank) continue;
        bool own = tensor().from[source].device == tensor().to[target].device;
        if (nearest == ~0u || (own && !same_device)) nearest = source;
        same_device = same_device || own;
      }
      (same_device ? plan_.kept_bytes : plan_.copied_bytes) += bytes_of(overlap);
      plan_.copies.push_back({tensor_, nearest, target, overlap});
    }
  }

  void ship(int32_t rank, const Box& overlap, const std::vector<uint32_t>& to, const std::vector<uint32_t>& holders) {
    auto load = [&](uint32_t i) {
      int32_t from = tensor().from[i].rank;
      return std::pair(plan_.rank_sends[static_cast<size_t>(from)], from);
    };
    uint32_t from =
        *std::min_element(holders.begin(), holders.end(), [&](uint32_t a, uint32_t b) { return load(a) < load(b); });
    auto sender = static_cast<size_t>(tensor().from[from].rank), receiver = static_cast<size_t>(rank);
    uint64_t bytes = bytes_of(overlap);
    plan_.sent_bytes += bytes;
    plan_.rank_sends[sender] += bytes;
    plan_.rank_receives[receiver] += bytes;
    plan_.copied_bytes += bytes * (to.size() - 1);
    Cut cut = cut_slabs(overlap.extent, std::max<uint64_t>(1, part_ / tensor().element_bytes), 1);
    for (uint64_t part = 0; part < cut.parts(); ++part) {
      Range range = cut.range(part);
      Box box = cut.parts() == 1 ? overlap : boxes_of_range(overlap, range.first, range.count).front();
      uint64_t part_bytes = bytes_of(box);
      uint32_t round = take_room(sender, receiver, part_bytes);
      plan_.shipments.push_back({tensor_, from, to, std::move(box), part_bytes, round});
    }
  }

  /// The first round, not before the last ones of both, in which both have room.
  uint32_t take_room(size_t sender, size_t receiver, uint64_t bytes) {
    uint32_t round = std::max(now_[sender].round, now_[receiver].round);
    auto used = [&](size_t rank) { return now_[rank].round == round ? now_[rank].bytes : 0; };
    if (std::max(used(sender), used(receiver)) + bytes > budget_) ++round;
    for (size_t rank : {sender, receiver}) now_[rank] = {round, used(rank) + bytes};
    plan_.rounds = std::max(plan_.rounds, round + 1);
    return round;
  }

  struct Now {
    uint32_t round = 0;
    uint64_t bytes = 0;
  };
  std::span<const RelayoutTensor> tensors_;
  const uint64_t budget_, part_;
  std::vector<Now> now_;  ///< per rank
  uint32_t tensor_ = 0;
  RelayoutPlan plan_;
};

}  // namespace

std::vector<Shard> shards_of(const DeviceMesh& mesh, const ShardGrid& grid, std::span<const int32_t> ranks) {
  auto ids = mesh.device_ids();
  std::vector<Shard> shards;
  for (int64_t position = 0; position < mesh.size(); ++position) {
    int64_t device = ids ? (*ids)[static_cast<size_t>(position)] : position;
    shards.push_back({grid.box_of(position), ranks[static_cast<size_t>(position)], device});
  }
  return shards;
}

Result<RelayoutPlan> plan_relayout(std::span<const RelayoutTensor> tensors, int ranks, uint64_t budget_bytes) {
  return RelayoutPlanner(tensors, ranks, budget_bytes).run();
}

}  // namespace shardwright
