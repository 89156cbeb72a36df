#include "shardwright/engine/relayout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "shardwright/base/checksum.h"
#include "shardwright/base/memory_budget.h"

namespace shardwright {
namespace {

/// Of all that every rank must see alike.
std::string fingerprint(std::span<const RelayoutTensor> tensors) {
  Bytes text;
  for (const auto& tensor : tensors) {
    append_le(text, tensor.element_bytes);
    for (auto* side : {&tensor.from, &tensor.to}) {
      append_le(text, static_cast<uint64_t>(side->size()));
      for (const Shard& shard : *side) {
        append_le(text, static_cast<uint64_t>(shard.box.start.size()));
        append_le(text, shard.rank);
        append_le(text, shard.device);
        for (int64_t value : shard.box.start) append_le(text, value);
        for (int64_t value : shard.box.extent) append_le(text, value);
      }
    }
  }
  return xxh3_128(text).hex();
}

/// The smallest budget, when all ask for the same.
Result<uint64_t> agree_on_budget(std::span<const RelayoutTensor> tensors, const RelayoutOptions& options, Comm& comm) {
  Bytes mine;
  append_le(mine, options.memory_bytes);
  std::ranges::copy(view_of(fingerprint(tensors)), std::back_inserter(mine));
  SHARDWRIGHT_ASSIGN(auto all, comm.all_gather(mine, deadline_in(options.wait)));
  uint64_t budget = options.memory_bytes;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != mine.size() || !std::equal(all[rank].begin() + 8, all[rank].end(), all[0].begin() + 8))
      return fail(Code::kInvalidArgument, fmt::format("rank {} asks for another relayout than rank 0", rank))
          .with_hint("all ranks give the same tensors and layouts, in the same order");
    budget = std::min(budget, load_le<uint64_t>(all[rank]));
  }
  return budget;
}

class Relayout {
 public:
  Relayout(std::span<const RelayoutTensor> tensors, const RelayoutPlan& plan, const RelayoutCalls& calls,
           const RelayoutOptions& options, Comm& comm)
      : tensors_(tensors), plan_(plan), calls_(calls), options_(options), comm_(comm) {
    for (const Shipment& shipment : plan.shipments) {
      if (sender(shipment) == comm.rank()) out_[{shipment.round, receiver(shipment)}].push_back(&shipment);
      if (receiver(shipment) == comm.rank()) in_[{shipment.round, sender(shipment)}].push_back(&shipment);
    }
  }

  Status run() {
    SHARDWRIGHT_TRY(finish_ready(0));
    for (uint32_t round = 0; round < plan_.rounds; ++round) {
      SHARDWRIGHT_TRY(run_round(round));
      SHARDWRIGHT_TRY(finish_ready(round + 1));
    }
    return {};
  }

 private:
  using Letters = std::map<std::pair<uint32_t, int>, std::vector<const Shipment*>>;

  int sender(const Shipment& shipment) const { return tensors_[shipment.tensor].from[shipment.from].rank; }
  int receiver(const Shipment& shipment) const { return tensors_[shipment.tensor].to[shipment.to.front()].rank; }

  Status run_round(uint32_t round) {
    uint64_t bytes = 0;
    for (auto* side : {&out_, &in_})
      for (auto at = side->lower_bound({round, 0}); at != side->end() && at->first.first == round; ++at)
        for (const Shipment* shipment : at->second) bytes += shipment->bytes;
    if (bytes == 0) return {};
    if (room_.size() < bytes) {
      room_ = {};
      room_ = Slab::allocate(bytes);
    }
    uint64_t used = 0;
    std::vector<Comm::Part> send, receive;
    for (auto at = out_.lower_bound({round, 0}); at != out_.end() && at->first.first == round; ++at) {
      uint64_t begin = used;
      for (const Shipment* shipment : at->second) SHARDWRIGHT_TRY(pack(*shipment, used));
      send.push_back({at->first.second, room_.span().subspan(begin, used - begin)});
    }
    uint64_t received = used;
    for (auto at = in_.lower_bound({round, 0}); at != in_.end() && at->first.first == round; ++at) {
      uint64_t begin = used;
      for (const Shipment* shipment : at->second) used += shipment->bytes;
      receive.push_back({at->first.second, room_.span().subspan(begin, used - begin)});
    }
    SHARDWRIGHT_TRY(comm_.exchange(send, receive, deadline_in(options_.wait)));
    for (auto at = in_.lower_bound({round, 0}); at != in_.end() && at->first.first == round; ++at)
      for (const Shipment* shipment : at->second) SHARDWRIGHT_TRY(unpack(*shipment, received));
    return {};
  }

  Status pack(const Shipment& shipment, uint64_t& at) {
    SHARDWRIGHT_ASSIGN(const ShardMemory* from, source(shipment.tensor, shipment.from));
    copy(shipment.tensor, shipment.box, layout(*from, tensors_[shipment.tensor].from[shipment.from].box), from->data,
         packed(shipment.box), room_.data() + at);
    at += shipment.bytes;
    return {};
  }

  Status unpack(const Shipment& shipment, uint64_t& at) {
    for (uint32_t shard : shipment.to) {
      SHARDWRIGHT_ASSIGN(const ShardMemory* to, target(shipment.tensor, shard));
      copy(shipment.tensor, shipment.box, packed(shipment.box), room_.data() + at,
           layout(*to, tensors_[shipment.tensor].to[shard].box), to->data);
    }
    at += shipment.bytes;
    return {};
  }

  /// What is complete after so many rounds.
  Status finish_ready(uint32_t rounds) {
    for (; next_ < tensors_.size() && plan_.ready[next_] <= rounds; ++next_) {
      for (; copy_ < plan_.copies.size() && plan_.copies[copy_].tensor == next_; ++copy_) {
        const LocalCopy& move = plan_.copies[copy_];
        const auto& from_shard = tensors_[next_].from[move.from];
        if (from_shard.rank != comm_.rank()) continue;
        SHARDWRIGHT_ASSIGN(const ShardMemory* from, source(next_, move.from));
        SHARDWRIGHT_ASSIGN(const ShardMemory* to, target(next_, move.to));
        copy(next_, move.box, layout(*from, from_shard.box), from->data, layout(*to, tensors_[next_].to[move.to].box),
             to->data);
      }
      // Targets that nothing goes into are asked for all the same: empty ones.
      for (uint32_t shard = 0; shard < tensors_[next_].to.size(); ++shard)
        if (tensors_[next_].to[shard].rank == comm_.rank()) SHARDWRIGHT_TRY(target(next_, shard));
      if (calls_.finished) SHARDWRIGHT_TRY(calls_.finished(next_));
      forget(sources_, next_);
      forget(targets_, next_);
    }
    return {};
  }

  void copy(uint32_t tensor, const Box& box, const Strided& from_layout, const std::byte* from,
            const Strided& to_layout, std::byte* to) const {
    if (!box.empty()) copy_strided(box, from_layout, from, to_layout, to, tensors_[tensor].element_bytes);
  }
  static Strided packed(const Box& box) { return {box, c_strides(box.extent)}; }
  static Strided layout(const ShardMemory& memory, const Box& box) {
    return memory.strides.empty() ? packed(box) : Strided{box, memory.strides};
  }

  using Memories = std::map<std::pair<uint32_t, uint32_t>, ShardMemory>;
  template <class Call>
  static Result<const ShardMemory*> remembered(Memories& memories, const Call& call, uint32_t tensor, uint32_t shard) {
    auto at = memories.find({tensor, shard});
    if (at == memories.end()) {
      SHARDWRIGHT_ASSIGN(auto memory, call(tensor, shard));
      at = memories.emplace(std::pair(tensor, shard), std::move(memory)).first;
    }
    return &at->second;
  }
  Result<const ShardMemory*> source(uint32_t tensor, uint32_t shard) {
    return remembered(sources_, calls_.source, tensor, shard);
  }
  Result<const ShardMemory*> target(uint32_t tensor, uint32_t shard) {
    return remembered(targets_, calls_.target, tensor, shard);
  }
  static void forget(Memories& memories, uint32_t tensor) {
    memories.erase(memories.lower_bound({tensor, 0}), memories.lower_bound({tensor + 1, 0}));
  }

  std::span<const RelayoutTensor> tensors_;
  const RelayoutPlan& plan_;
  const RelayoutCalls& calls_;
  const RelayoutOptions& options_;
  Comm& comm_;
  Letters out_, in_;  ///< by round and peer
  Memories sources_, targets_;
  Slab room_;
  uint32_t next_ = 0;  ///< tensor
  size_t copy_ = 0;
};

}  // namespace

Result<RelayoutPlan> relayout(std::span<const RelayoutTensor> tensors, const RelayoutCalls& calls,
                              const RelayoutOptions& options, Comm& comm) {
  SHARDWRIGHT_ASSIGN(uint64_t budget, agree_on_budget(tensors, options, comm));
  SHARDWRIGHT_ASSIGN(auto plan, plan_relayout(tensors, comm.size(), budget));
  Status mine = Relayout(tensors, plan, calls, options, comm).run();
  // Others wait in rounds that this rank will not come to.
  if (!mine.ok()) comm.abandon(mine.error());
  SHARDWRIGHT_TRY(agree(comm, mine, deadline_in(options.wait)));
  return plan;
}

}  // namespace shardwright
