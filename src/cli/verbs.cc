#include "cli/verbs.h"

#include "shardwright/base/text.h"

namespace shardwright::cli {

Result<Checkpoint> open_argument(Invocation& invocation, std::string_view argument) {
  Result<Checkpoint> opened = open_checkpoint(invocation.arguments.text(argument), invocation.job.open);
  if (opened.ok()) {
    for (const std::string& note : opened->notes) invocation.output.note(note);
  }
  return opened;
}

Where where_is(const Catalog& catalog, TensorId tensor) {
  std::span<const ObjectInfo> objects = catalog.objects();
  Where where;
  if (std::optional<Catalog::Flat> flat = catalog.flat(tensor); flat && flat->place.site == Place::kExtent) {
    return {objects[flat->place.object].key, flat->place.offset};
  }
  for (const Piece& piece : catalog.pieces(tensor)) {
    if (piece.place.site != Place::kExtent) continue;
    std::string_view key = objects[piece.place.object].key;
    if (!where.shard.empty() && where.shard != key) return {};
    where.shard = key;
  }
  if (where.shard.empty() && objects.size() == 1) where.shard = objects[0].key;
  return where;
}

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

std::string counted(uint64_t count, std::string_view noun) {
  return format_count(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace shardwright::cli
