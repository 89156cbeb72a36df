/// Values from the shards of one layout into those of another, between devices and ranks, by the fewest bytes and without gathering.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shardwright/comm/comm.h"
#include "shardwright/layout/tensor_layout.h"
#include "shardwright/tensor/box.h"

namespace shardwright {

/// A box of a tensor on a device. Devices are told apart by rank and number.
struct Shard {
  Box box;
  int32_t rank = 0;
  int64_t device = 0;
};

/// A tensor and both its layouts, as every rank knows them. Boxes of one side are pairwise equal (replicas) or disjoint; those of `to` lie
/// within what those of `from` are together.
struct RelayoutTensor {
  std::string name;
  uint32_t element_bytes = 1;  ///< 1, 2, 4, 8 or 16
  std::vector<Shard> from, to;
};

/// One shard per mesh position. ranks: of each position. device: the number at the end of its name; its position where a name has none.
std::vector<Shard> shards_of(const DeviceMesh& mesh, const ShardGrid& grid, std::span<const int32_t> ranks);

/// A box from one rank to another, whose devices all want it. tensor: its number; from, to: indices of RelayoutTensor::from and ::to.
struct Shipment {
  uint32_t tensor = 0, from = 0;
  std::vector<uint32_t> to;
  Box box;
  uint64_t bytes = 0;
  uint32_t round = 0;
};
/// A box from one device of a rank to another, or to itself; numbers as in Shipment.
struct LocalCopy {
  uint32_t tensor = 0, from = 0, to = 0;
  Box box;
};

/// What is moved, and when. Pure, and the same on every rank.
/// Sources are the nearest: the device itself, then one of its rank, then the rank that has the least to send so far (the lowest of those).
/// What several devices of a rank want goes to that rank once. In a round, what a rank sends and receives together fits the budget.
struct RelayoutPlan {
  std::vector<Shipment> shipments;  ///< by tensor; rounds do not fall for any rank
  std::vector<LocalCopy> copies;    ///< by tensor
  std::vector<uint32_t> ready;  ///< per tensor: after so many rounds it is complete everywhere, its sources of no use
  uint32_t rounds = 0;
  uint64_t sent_bytes = 0;    ///< between ranks
  uint64_t copied_bytes = 0;  ///< between devices of a rank, further devices that want what was received included
  uint64_t kept_bytes = 0;    ///< within a device
  std::vector<uint64_t> rank_sends, rank_receives;  ///< bytes
};

/// budget_bytes: of the rank that has the least. Errors: kInvalidArgument for what no rank holds, for sizes of elements that are none,
/// ranks out of range, boxes that do not go together; kResourceExhausted for a budget under 64 KiB.
Result<RelayoutPlan> plan_relayout(std::span<const RelayoutTensor> tensors, int ranks, uint64_t budget_bytes);

/// Where a shard lies: its first element, and elements between neighbours per dimension (none: C order of its box).
struct ShardMemory {
  std::byte* data = nullptr;
  std::vector<int64_t> strides{};
};

/// Of the shards of this rank; called on the thread that called relayout(), once per shard at most, when its tensor's turn comes. finished:
/// of every tensor, in order: its targets are complete, its sources may be freed.
struct RelayoutCalls {
  std::function<Result<ShardMemory>(uint32_t tensor, uint32_t shard)> source, target;
  std::function<Status(uint32_t tensor)> finished{};
};

struct RelayoutOptions {
  uint64_t memory_bytes = 256 * MiB;           ///< what goes out and comes in, per round; the least of all ranks counts
  std::chrono::milliseconds wait{300 * 1000};  ///< for one round
};

/// Collective over comm. Every rank gives the same tensors. Returns what was done.
/// Errors: of planning and of calls, on every rank; kInvalidArgument when ranks ask for different things; kUnavailable, with the ranks that
/// are missing. Targets are half filled then, sources of tensors that were not finished are whole; where it was not planning that failed, the Comm
/// is of no more use.
/// Memory: a round's bytes, at most the least budget; of the Comm beside it, letters under way.
Result<RelayoutPlan> relayout(std::span<const RelayoutTensor> tensors, const RelayoutCalls& calls,
                              const RelayoutOptions& options, Comm& comm);

}  // namespace shardwright
