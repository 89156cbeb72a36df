#include "shardwright/format/catalog_summary.h"

#include "shardwright/format/format.h"

namespace shardwright {

std::vector<ShardContent> shard_contents(const Catalog& catalog) {
  std::vector<ShardContent> shards(catalog.objects().size());
  std::vector<TensorId> last(shards.size(), kNoTensor);
  auto add = [&](ObjectId object, TensorId tensor, uint64_t nbytes) {
    shards[object].tensors += last[object] != tensor;
    shards[object].nbytes += nbytes;
    last[object] = tensor;
  };
  for (TensorId tensor = 0; tensor < catalog.size(); ++tensor) {
    if (catalog.same_as(tensor) != tensor) continue;
    Catalog::Spec spec = catalog.spec(tensor);
    if (std::optional<Catalog::Flat> flat = catalog.flat(tensor)) {
      bool inside = flat->place.site == Place::kExtent || shards.size() == 1;
      if (inside) add(flat->place.site == Place::kExtent ? flat->place.object : 0, tensor, spec.nbytes());
      continue;
    }
    for (const Piece& piece : catalog.pieces(tensor)) {
      if (piece.place.site != Place::kExtent && shards.size() != 1) continue;
      ObjectId object = piece.place.site == Place::kExtent ? piece.place.object : 0;
      add(object, tensor, bytes_of_elements(spec.dtype, piece.box.elements()).value_or(0));
    }
  }
  return shards;
}

uint64_t parameter_count(const Catalog& catalog) {
  uint64_t count = 0;
  for (TensorId tensor = 0; tensor < catalog.size(); ++tensor) {
    if (catalog.same_as(tensor) == tensor) count += catalog.spec(tensor).elements();
  }
  return count;
}

std::vector<DTypeContent> dtype_contents(const Catalog& catalog) {
  std::vector<DTypeContent> out;
  for (TensorId tensor = 0; tensor < catalog.size(); ++tensor) {
    Catalog::Spec spec = catalog.spec(tensor);
    size_t i = 0;
    while (i < out.size() && out[i].dtype != spec.dtype) ++i;
    if (i == out.size()) out.push_back({spec.dtype});
    ++out[i].tensors;
    if (catalog.same_as(tensor) == tensor) out[i].nbytes += spec.nbytes();
  }
  return out;
}

}  // namespace shardwright
