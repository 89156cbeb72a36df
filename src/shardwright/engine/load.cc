#include "shardwright/engine/load.h"

#include <algorithm>
#include <numeric>

namespace shardwright {
namespace {

constexpr uint64_t kDirectStep = 4096, kStep = 64;
/// Tensors whose gap in the file is at most this keep it in memory: reads are not broken there.
constexpr uint64_t kKeptGap = 4096;

Result<std::vector<TensorId>> choose(const Catalog& catalog, const std::vector<std::string>& names) {
  std::vector<TensorId> ids;
  if (names.empty()) {
    ids.resize(catalog.size());
    std::iota(ids.begin(), ids.end(), 0u);
    return ids;
  }
  for (const auto& name : names) {
    auto id = catalog.find(name);
    if (id) {
      ids.push_back(*id);
      continue;
    }
    auto near = nearest_tensors(catalog, name);
    return fail(Code::kNotFound, "no such tensor")
        .at_tensor(name)
        .with_hint(near.empty() ? "" : "nearest name: '" + near[0] + "'");
  }
  return ids;
}

/// Offset of each tensor in the arena, by tensor of the catalogue; the arena's size last.
std::vector<uint64_t> place_tensors(const Catalog& catalog, std::vector<TensorId> ids) {
  auto place_of = [&](TensorId id) { return catalog.flat(id).value_or(Catalog::Flat{}).place; };
  std::ranges::sort(ids, {}, [&](TensorId id) { return std::tuple(place_of(id).object, place_of(id).offset, id); });
  std::vector<uint64_t> at(catalog.size() + 1, kUnknown);
  uint64_t end = 0;
  ObjectId object = ~0u;
  uint64_t file_end = 0;
  for (TensorId id : ids) {
    auto flat = catalog.flat(id);
    uint64_t bytes = catalog.spec(id).nbytes();
    bool in_file = flat && flat->place.site == Place::kExtent && flat->stored == catalog.spec(id).dtype && bytes > 0;
    if (!in_file) {
      end = round_up(end, kStep);
    } else if (flat->place.object == object && flat->place.offset >= file_end &&
               flat->place.offset - file_end <= kKeptGap) {
      end += flat->place.offset - file_end;
    } else {
      end = round_up(end, kDirectStep) + flat->place.offset % kDirectStep;
    }
    at[id] = end;
    end += bytes;
    if (in_file) {
      object = flat->place.object;
      file_end = flat->place.offset + bytes;
    }
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
  SHARDWRIGHT_ASSIGN(auto ids, choose(from, names));
  std::vector<TensorId> holders;
  for (TensorId id : ids) holders.push_back(from.same_as(id));
  std::ranges::sort(holders);
  holders.erase(std::ranges::unique(holders).begin(), holders.end());
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
