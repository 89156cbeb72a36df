/// For tests only: a relayout drawn by a seed, run by all ranks of a Comm, and held against element by element counting.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "shardwright/engine/relayout.h"

namespace shardwright::testing_support {

/// Several tensors, from one random mesh and layout each to another.
class RelayoutCase {
 public:
  /// large: some are, so that they take several rounds.
  RelayoutCase(uint64_t seed, int ranks, bool large) : random_(seed), ranks_(ranks), large_(large) {
    budget_ = large ? 64 * KiB : pick({64 * KiB, 100000, 1 * MiB});
    for (uint64_t count = pick({1, 2, 5}), i = 0; i < count; ++i) add(fmt::format("tensor {}", i));
  }

  /// "" when all is well.
  std::string check_plan() const {
    auto plan = plan_relayout(tensors_, ranks_, budget_);
    if (!plan.ok()) return plan.error().text();
    uint64_t between_ranks = 0, between_devices = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      between_ranks += missing(i, [](const Shard& s) { return std::pair(s.rank, int64_t{0}); });
      between_devices += missing(i, [](const Shard& s) { return std::pair(s.rank, s.device); });
    }
    if (plan->sent_bytes != between_ranks)
      return fmt::format("{} bytes sent, {} must be", plan->sent_bytes, between_ranks);
    if (plan->sent_bytes + plan->copied_bytes != between_devices)
      return fmt::format("{} + {} bytes moved, {} must be", plan->sent_bytes, plan->copied_bytes, between_devices);
    std::map<std::pair<uint32_t, int>, uint64_t> room;
    std::map<int, uint32_t> last;
    for (const Shipment& shipment : plan->shipments) {
      for (int rank :
           {tensors_[shipment.tensor].from[shipment.from].rank, tensors_[shipment.tensor].to[shipment.to[0]].rank}) {
        if ((room[{shipment.round, rank}] += shipment.bytes) > budget_) return "a round is over the budget";
        if (shipment.round < last[rank]) return "rounds of a rank fall";
        last[rank] = shipment.round;
      }
      if (shipment.round >= plan->ready[shipment.tensor]) return "a tensor is ready too early";
    }
    return "";
  }

  uint32_t rounds() const {
    auto plan = plan_relayout(tensors_, ranks_, budget_);
    return plan.ok() ? plan->rounds : 0;
  }

  std::string run(Comm& comm) {
    make_memory(comm.rank());
    std::string wrong;
    uint32_t finished = 0;
    RelayoutCalls calls;
    calls.source = [&](uint32_t t, uint32_t i) { return Result<ShardMemory>(memory(sources_, t, i)); };
    calls.target = [&](uint32_t t, uint32_t i) { return Result<ShardMemory>(memory(targets_, t, i)); };
    calls.finished = [&](uint32_t t) {
      if (t != finished++) wrong = "finished out of order";
      for (auto& [key, array] : sources_)  // whoever still reads it gets it wrong
        if (key.first == t) std::ranges::fill(array.bytes, std::byte{0xEE});
      return Status();
    };
    RelayoutOptions options;
    options.memory_bytes = budget_ + static_cast<uint64_t>(comm.rank()) * 1000;
    auto done = relayout(tensors_, calls, options, comm);
    if (!done.ok()) return done.error().text();
    if (finished != tensors_.size()) return "not all finished";
    for (auto& [key, array] : targets_)
      if (auto text = check_values(key.first, array); !text.empty()) wrong = text;
    return wrong;
  }

 private:
  struct Array {
    Strided layout;
    Bytes bytes;
  };
  using Arrays = std::map<std::pair<uint32_t, uint32_t>, Array>;

  uint64_t pick(std::vector<uint64_t> from) { return from[random_() % from.size()]; }

  /// Devices in any order; as many as the ranks have, or, for a mesh of its own, some of the ranks' or more.
  DeviceMesh draw_mesh(int64_t devices) {
    std::vector<int64_t> shape;
    for (int64_t rest = devices; rest > 1 || shape.empty();) {
      int64_t size = rest == 1 ? 1 : static_cast<int64_t>(pick({2, 3, 4, 5, 6, 7, 8}));
      if (rest % size != 0) continue;
      shape.push_back(size);
      rest /= size;
    }
    if (pick({0, 1, 2}) == 0) shape.push_back(1);
    std::ranges::shuffle(shape, random_);
    std::vector<std::string> axes, names;
    for (size_t i = 0; i < shape.size(); ++i) axes.push_back(std::string(1, static_cast<char>('a' + i)));
    for (int64_t i = 0; i < devices; ++i) names.push_back(std::to_string(i));
    if (pick({0, 1}) == 0) std::ranges::shuffle(names, random_);
    return *DeviceMesh::create(shape, axes, names);
  }

  std::vector<Shard> draw_side(const std::vector<int64_t>& shape, int64_t per_rank) {
    int64_t devices = ranks_ * per_rank;
    DeviceMesh mesh = draw_mesh(devices);
    TensorLayout layout;
    layout.uneven = Uneven::kChunk;
    layout.dims.resize(shape.size());
    for (const auto& axis : mesh.axis_names())
      if (!shape.empty() && pick({0, 1, 2}) != 0) layout.dims[random_() % shape.size()].push_back(axis);
    auto ids = *mesh.device_ids();
    std::vector<int32_t> ranks;
    for (int64_t id : ids) ranks.push_back(static_cast<int32_t>(id / per_rank));
    return shards_of(mesh, *ShardGrid::create(mesh, layout, shape), ranks);
  }

  void add(std::string name) {
    std::vector<int64_t> shape;
    for (uint64_t rank = pick({0, 1, 2, 2, 3}), d = 0; d < rank; ++d)
      shape.push_back(static_cast<int64_t>(pick({0, 1, 2, 5, 8, 12, 16, 24, 30, 61})));
    if (large_ && shape.size() == 2 && pick({0, 1, 2}) != 0) shape = {100, 301};
    auto size = static_cast<uint32_t>(pick({1, 2, 4, 8}));
    auto from = draw_side(shape, static_cast<int64_t>(pick({1, 2, 3})));
    auto to = draw_side(shape, static_cast<int64_t>(pick({1, 2, 4})));
    tensors_.push_back({std::move(name), size, std::move(from), std::move(to)});
    shapes_.push_back(shape);
  }

  uint64_t index_of(size_t tensor, std::span<const int64_t> at) const {
    uint64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d)
      index = index * static_cast<uint64_t>(shapes_[tensor][d]) + static_cast<uint64_t>(at[d]);
    return index;
  }

  /// visit(index in the tensor, coordinates) of every element of a box.
  template <class Visit>
  void each(size_t tensor, const Box& box, const Visit& visit) const {
    if (box.empty()) return;
    auto at = box.start;
    while (true) {
      visit(index_of(tensor, at), at);
      size_t d = at.size();
      while (d > 0 && ++at[d - 1] == box.start[d - 1] + box.extent[d - 1]) {
        at[d - 1] = box.start[d - 1];
        --d;
      }
      if (d == 0) return;
    }
  }

  /// Bytes wanted by someone who does not hold them.
  template <class Who>
  uint64_t missing(size_t tensor, const Who& who) const {
    uint64_t elements = 1;
    for (int64_t extent : shapes_[tensor]) elements *= static_cast<uint64_t>(extent);
    std::map<std::pair<int32_t, int64_t>, std::vector<bool>> held, wanted;
    auto mark = [&](auto& map, const Shard& s) {
      auto& mask = map[who(s)];
      mask.resize(elements);
      each(tensor, s.box, [&](uint64_t i, auto&) { mask[i] = true; });
    };
    for (const Shard& s : tensors_[tensor].from) mark(held, s);
    for (const Shard& s : tensors_[tensor].to) mark(wanted, s);
    uint64_t count = 0;
    for (auto& [holder, mask] : wanted) {
      auto& have = held[holder];
      have.resize(elements);
      for (uint64_t i = 0; i < elements; ++i) count += mask[i] && !have[i] ? 1 : 0;
    }
    return count * tensors_[tensor].element_bytes;
  }

  void make_memory(int rank) {
    for (uint32_t t = 0; t < tensors_.size(); ++t)
      for (auto* side : {&tensors_[t].from, &tensors_[t].to})
        for (uint32_t i = 0; i < side->size(); ++i) {
          const Shard& shard = (*side)[i];
          if (shard.rank != rank) continue;
          bool source = side == &tensors_[t].from;
          Array array{{shard.box, c_strides(shard.box.extent)},
                      Bytes(shard.box.elements() * tensors_[t].element_bytes)};
          if (i % 2 == 0) array.layout.strides = transposed(shard.box.extent);
          if (source) each(t, shard.box, [&](uint64_t index, auto& at) { put(t, array, at, index); });
          (source ? sources_ : targets_)[{t, i}] = std::move(array);
        }
  }

  static std::vector<int64_t> transposed(const std::vector<int64_t>& extent) {
    std::vector<int64_t> strides;
    int64_t step = 1;
    for (int64_t e : extent) {
      strides.push_back(step);
      step *= std::max<int64_t>(e, 1);
    }
    return strides;
  }

  std::byte* element(uint32_t t, Array& array, std::span<const int64_t> at) const {
    return array.bytes.data() + array.layout.offset_of(at) * tensors_[t].element_bytes;
  }
  /// Neighbours differ, also in one byte.
  static uint64_t value(uint64_t index) { return (index + 1) * 0x9E3779B97F4A7C15u >> 8; }
  void put(uint32_t t, Array& array, std::span<const int64_t> at, uint64_t index) const {
    uint64_t bits = value(index);
    std::memcpy(element(t, array, at), &bits, tensors_[t].element_bytes);
  }
  std::string check_values(uint32_t t, Array& array) const {
    uint64_t wrong = 0;
    each(t, array.layout.box, [&](uint64_t index, auto& at) {
      uint64_t bits = value(index);
      wrong += std::memcmp(element(t, array, at), &bits, tensors_[t].element_bytes) != 0;
    });
    return wrong == 0 ? "" : fmt::format("{}: {} elements are wrong", tensors_[t].name, wrong);
  }
  static ShardMemory memory(Arrays& arrays, uint32_t t, uint32_t i) {
    auto& array = arrays.at({t, i});
    return {array.bytes.data(), array.layout.strides};
  }

  std::mt19937_64 random_;
  int ranks_;
  bool large_;
  uint64_t budget_ = 0;
  std::vector<RelayoutTensor> tensors_;
  std::vector<std::vector<int64_t>> shapes_;
  Arrays sources_, targets_;
};

/// Cases from one seed on; "" when all are well.
inline std::string check_relayouts(Comm& comm, uint64_t first_seed, int count, bool large = false) {
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(count); ++seed) {
    std::string wrong = RelayoutCase(seed, comm.size(), large).run(comm);
    if (!wrong.empty()) return fmt::format("seed {}, rank {} of {}: {}", seed, comm.rank(), comm.size(), wrong);
  }
  return "";
}

}  // namespace shardwright::testing_support
