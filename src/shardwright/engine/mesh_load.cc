#include "shardwright/engine/mesh_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "shardwright/engine/saved_layout.h"
#include "shardwright/engine/select.h"
#include "shardwright/layout/layout_report.h"

namespace shardwright {
namespace {

/// A distinct box of a wanted tensor: one array for each seat that has it (and each name of it), of which some share their bytes.
struct Target {
  struct Copy {
    TensorId tensor;  ///< by its own name
    int64_t position;
    std::unique_ptr<DeviceArray> array;
  };
  Box box;
  std::vector<Copy> copies;
  std::vector<size_t> owners;  ///< copies that have bytes of their own; the first always
};

/// What one tensor of the plan's target is: a wanted tensor, with those that are tied to it and lie as it does.
struct Item {
  TensorId from;
  DType dtype;
  std::vector<Target> targets;
  bool in_memory = true;  ///< all owners are the host's
};

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, std::span<const MeshSeat> seats, const std::function<Status(MeshBox)>& take)
      : checkpoint_(checkpoint), from_(checkpoint.catalog), seats_(seats), take_(take) {}

  Status add(const MeshTensor& wanted) {
    auto spec = from_.spec(wanted.tensor);
    std::vector<Target> targets;
    std::map<Box, size_t> by_box;
    for (const MeshSeat& seat : seats_) {
      Box box = wanted.grid.box_of(seat.position);
      if (box.rank() != spec.shape.size() || !Box::whole(spec.shape).contains(box))
        return fail(Code::kInvalidArgument, "the layout was made for another shape")
            .with_found(box.text())
            .with_expected("a box within " + shape_text(spec.shape));
      auto [at, is_new] = by_box.try_emplace(box, targets.size());
      if (is_new) {
        SHARDWRIGHT_TRY(bytes_of_box(spec.dtype, spec.shape, box));
        targets.push_back({std::move(box), {}, {}});
      }
      targets[at->second].copies.push_back({wanted.tensor, seat.position, nullptr});
    }
    if (Item* same = item_like(from_.same_as(wanted.tensor), wanted.dtype, targets)) {
      for (size_t i = 0; i < targets.size(); ++i)
        std::ranges::move(targets[i].copies, std::back_inserter(same->targets[i].copies));
    } else {
      by_holder_.emplace(from_.same_as(wanted.tensor), items_.size());
      items_.push_back({wanted.tensor, wanted.dtype, std::move(targets)});
    }
    return {};
  }

  /// Asks the devices for all arrays.
  Status allocate() {
    std::map<int64_t, Device*> devices;
    for (const MeshSeat& seat : seats_) devices.emplace(seat.position, seat.device);
    for (Item& item : items_)
      for (Target& target : item.targets) {
        SHARDWRIGHT_ASSIGN(uint64_t bytes, bytes_of_box(item.dtype, from_.spec(item.from).shape, target.box));
        for (size_t i = 0; i < target.copies.size(); ++i) {
          auto& copy = target.copies[i];
          auto status = allocate(target, i, *devices.at(copy.position), bytes);
          if (!status.ok()) return std::move(status.error()).at_tensor(std::string(from_.spec(copy.tensor).name));
          summary_.bytes += bytes;
        }
        for (size_t owner : target.owners)
          item.in_memory = item.in_memory && (bytes == 0 || !target.copies[owner].array->host().empty());
      }
    return {};
  }

  Result<MeshLoad> run(const JobOptions& options) {
    SHARDWRIGHT_ASSIGN(auto to, target_catalog());
    for (Item& item : items_)
      for (Target& target : item.targets)
        if (target.box.empty()) SHARDWRIGHT_TRY(hand_on(item, target));
    SHARDWRIGHT_ASSIGN(auto plan, plan_load(from_, to, origin_, options.plan));
    uint64_t before = checkpoint_.store->bytes_read();
    Calls calls;
    bool puts = std::ranges::any_of(planned_, [](const Planned& planned) { return !planned.item->in_memory; });
    if (puts) calls.consume = [&](TensorId id, const Box& box, View values) { return put(id, box, values); };
    calls.filled = [&](TensorId id, uint32_t piece) {
      return hand_on(*planned_[id].item, *planned_[id].targets[piece]);
    };
    if (options.progress)
      calls.keep_going = [&](uint64_t done, uint64_t total) { return options.progress("read", done, total); };
    SHARDWRIGHT_ASSIGN(auto done, execute(plan, {checkpoint_.store.get(), nullptr, nullptr}, calls));
    summary_.needed_bytes = plan.summary.read_bytes;
    summary_.gap_bytes = plan.summary.gap_bytes;
    summary_.read_bytes = checkpoint_.store->bytes_read() - before;
    summary_.peak_bytes = done.peak_bytes;
    return summary_;
  }

 private:
  struct Planned {
    Item* item;
    std::vector<Target*> targets;  ///< by piece
  };

  /// A tensor of the same bytes, dtype and boxes that is wanted already.
  Item* item_like(TensorId holder, DType dtype, const std::vector<Target>& targets) {
    auto [first, last] = by_holder_.equal_range(holder);
    for (; first != last; ++first) {
      Item& item = items_[first->second];
      auto same_box = [](const Target& a, const Target& b) { return a.box == b.box; };
      if (item.dtype == dtype && std::ranges::equal(item.targets, targets, same_box)) return &item;
    }
    return nullptr;
  }

  Status allocate(Target& target, size_t number, Device& device, uint64_t bytes) {
    auto& copy = target.copies[number];
    for (size_t owner : target.owners)
      if (!copy.array) copy.array = device.share(*target.copies[owner].array);
    if (copy.array) return {};
    SHARDWRIGHT_ASSIGN(copy.array, device.allocate(bytes));
    target.owners.push_back(number);
    return {};
  }

  /// What is to be filled: tensors in the order of planned_, with a piece for each box that has elements.
  Result<Catalog> target_catalog() {
    CatalogBuilder builder;
    for (Item& item : items_) {
      Planned planned{&item, {}};
      for (Target& target : item.targets)
        if (!target.box.empty()) planned.targets.push_back(&target);
      if (planned.targets.empty()) continue;
      auto spec = from_.spec(item.from);
      // Names may be wanted twice, in two dtypes: they are of no use here.
      SHARDWRIGHT_TRY(builder.add_tensor(std::to_string(planned_.size()), item.dtype, spec.shape));
      auto encoding = builder.add_encoding({item.dtype});
      for (const Target* target : planned.targets) {
        DeviceArray& array = *target->copies[target->owners.front()].array;
        Place place{Place::kCall, -1, 0, 0, array.size()};
        if (item.in_memory) {
          place.site = Place::kMemory;
          place.offset = reinterpret_cast<uint64_t>(array.host().data());
        }
        SHARDWRIGHT_TRY(builder.add_piece({target->box, place, encoding, {}}));
      }
      origin_.push_back(item.from);
      planned_.push_back(std::move(planned));
    }
    return builder.build(/*partial=*/true);
  }

  /// A part of one box, on its way through the budget to every array of its own.
  Status put(TensorId id, const Box& part, View values) {
    const Planned& planned = planned_[id];
    const Target& target =
        **std::ranges::find_if(planned.targets, [&](const Target* t) { return t->box.contains(part); });
    Strided held{part, c_strides(part.extent)}, whole{target.box, c_strides(target.box.extent)};
    Status status;
    auto bytes = [&](int64_t elements) {
      return bytes_of_elements(planned.item->dtype, static_cast<uint64_t>(elements)).value_or(0);
    };
    for (size_t owner : target.owners)
      for_each_run(part, held, whole, [&](int64_t from, int64_t to, int64_t elements) {
        if (!status.ok()) return;
        status = target.copies[owner].array->put(bytes(to), values.subspan(bytes(from), bytes(elements)));
      });
    return status;
  }

  /// A box that is whole: to the other arrays of their own, and to the consumer.
  Status hand_on(const Item& item, Target& target) {
    View values = item.in_memory ? View(target.copies[target.owners.front()].array->host()) : View{};
    for (size_t i = 0; i < target.owners.size(); ++i) {
      DeviceArray& array = *target.copies[target.owners[i]].array;
      if (i > 0 && !values.empty()) SHARDWRIGHT_TRY(array.put(0, values));
      SHARDWRIGHT_TRY(array.finish());
    }
    for (auto& copy : target.copies) {
      ++summary_.boxes;
      SHARDWRIGHT_TRY(take_({copy.tensor, item.dtype, target.box, copy.position, std::move(copy.array)}));
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const Catalog& from_;
  std::span<const MeshSeat> seats_;
  const std::function<Status(MeshBox)>& take_;
  std::vector<Item> items_;
  std::multimap<TensorId, size_t> by_holder_;
  std::vector<Planned> planned_;  ///< by tensor of the plan's target
  std::vector<TensorId> origin_;
  MeshLoad summary_;
};

Status check_seats(std::span<const MeshSeat> seats) {
  std::vector<int64_t> positions;
  for (const MeshSeat& seat : seats) positions.push_back(seat.position);
  std::ranges::sort(positions);
  auto twice = std::ranges::adjacent_find(positions);
  if (twice == positions.end()) return {};
  return fail(Code::kInvalidArgument, fmt::format("position {} of the mesh is given twice", *twice));
}

}  // namespace

Result<std::vector<MeshTensor>> lay_out(const LayoutMap& map, const Catalog& catalog,
                                        const std::vector<std::string>& names) {
  SHARDWRIGHT_ASSIGN(auto ids, find_tensors(catalog, names));
  std::vector<TensorToLay> tensors;
  for (TensorId id : ids) tensors.push_back(tensor_to_lay(catalog, id));
  LayoutReport report = report_layout(map, tensors);
  SHARDWRIGHT_TRY(problem_of(report));
  std::vector<MeshTensor> out;
  for (size_t i = 0; i < ids.size(); ++i) out.push_back({ids[i], tensors[i].dtype, std::move(*report.rows[i].grid)});
  return out;
}

Result<MeshLoad> load_onto_mesh(const Checkpoint& checkpoint, std::span<const MeshTensor> tensors,
                                std::span<const MeshSeat> seats, const std::function<Status(MeshBox)>& take,
                                const JobOptions& options) {
  auto begun = std::chrono::steady_clock::now();
  SHARDWRIGHT_TRY(check_seats(seats));
  Loader loader(checkpoint, seats, take);
  for (const MeshTensor& tensor : tensors) {
    auto status = loader.add(tensor);
    if (!status.ok())
      return std::move(status.error()).at_tensor(std::string(checkpoint.catalog.spec(tensor.tensor).name));
  }
  SHARDWRIGHT_TRY(loader.allocate());
  SHARDWRIGHT_ASSIGN(MeshLoad summary, loader.run(options));
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return summary;
}

}  // namespace shardwright
