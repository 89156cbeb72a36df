#include "shardwright/engine/load.h"

#include <algorithm>

#include "shardwright/engine/select.h"

namespace shardwright {
namespace {

constexpr uint64_t kDirectStep = 4096, kStep = 64;
/// Tensors whose gap in the file is at most this keep it in memory: reads are not broken there.
constexpr uint64_t kKeptGap = 4096;

/// Offset of each tensor in the arena, by tensor of the catalogue; the arena's size last.
std::vector<uint64_t> place_tensors(const Catalog& catalog, std::vector<TensorId> ids) {
  auto in_file = [&](TensorId id) {
    auto flat = catalog.flat(id);
    return flat && flat->place.site == Place::kExtent && flat->place.length > 0 &&
           flat->stored == catalog.spec(id).dtype;
  };
  // Those in files first and in file order: nothing else comes between two that are neighbours there.
  std::ranges::sort(ids, {}, [&](TensorId id) {
    auto place = in_file(id) ? catalog.flat(id)->place : Place{};
    return std::tuple(!in_file(id), place.object, place.offset, id);
  });
  std::vector<uint64_t> at(catalog.size() + 1, kUnknown);
  uint64_t end = 0, file_end = 0;
  ObjectId object = ~0u;
  for (TensorId id : ids) {
    uint64_t bytes = catalog.spec(id).nbytes();
    if (!in_file(id)) {
      at[id] = round_up(end, kStep);
    } else {
      auto place = catalog.flat(id)->place;
      bool near = place.object == object && place.offset >= file_end && place.offset - file_end <= kKeptGap;
      at[id] = near ? end + (place.offset - file_end) : round_up(end, kDirectStep) + place.offset % kDirectStep;
      object = place.object;
      file_end = place.offset + bytes;
    }
    end = at[id] + bytes;
  }
  at.back() = end;
  return at;
}

}  // namespace

View Loaded::values(TensorId tensor) const {
  auto flat = catalog.flat(tensor);
  return {reinterpret_cast<const std::byte*>(flat->place.offset), catalog.spec(tensor).nbytes()};
}

Result<Loaded> load_checkpoint(const Checkpoint& checkpoint, const std::vector<std::string>& names,
                               const JobOptions& options) {
  const auto& from = checkpoint.catalog;
  SHARDWRIGHT_ASSIGN(auto ids, find_tensors(from, names));
  std::vector<TensorId> holders;
  for (TensorId id : ids) holders.push_back(from.same_as(id));
  std::ranges::sort(holders);
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  auto at = place_tensors(from, holders);
  Loaded out;
  out.arena = Slab::allocate(at.back());
  CatalogBuilder builder;
  std::vector<TensorId> first_name(from.size(), kNoTensor);
  for (TensorId id : ids) {
    auto spec = from.spec(id);
    SHARDWRIGHT_ASSIGN(auto target, builder.add_tensor(spec.name, spec.dtype, spec.shape));
    TensorId& first = first_name[from.same_as(id)];
    if (first != kNoTensor) {
      builder.tie(target, first);
      continue;
    }
    first = target;
    Place place{Place::kMemory, -1, 0, reinterpret_cast<uint64_t>(out.arena.data()) + at[from.same_as(id)],
                spec.nbytes()};
    SHARDWRIGHT_TRY(builder.add_flat(place, spec.dtype));
  }
  SHARDWRIGHT_ASSIGN(out.catalog, builder.build());
  SHARDWRIGHT_ASSIGN(auto plan, plan_load(from, out.catalog, ids, options.plan));
  Calls calls;
  calls.keep_going = [&](uint64_t done, uint64_t total) {
    return !options.progress || options.progress("read", done, total);
  };
  SHARDWRIGHT_TRY(execute(plan, {checkpoint.store.get(), nullptr, nullptr}, calls));
  return out;
}

}  // namespace shardwright
