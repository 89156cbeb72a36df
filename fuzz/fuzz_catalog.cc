/// Catalog::deserialize: any bytes; what it takes can be walked, and comes out again as it went in.
#include <algorithm>

#include "fuzz_support.h"
#include "shardwright/format/catalog.h"

namespace {

using namespace shardwright;

void walk(const Catalog& catalog) {
  for (TensorId id = 0; id < catalog.size(); ++id) {
    auto spec = catalog.spec(id);
    FUZZ_CLAIM(catalog.find(spec.name) == id);
    TensorId kept = catalog.same_as(id);
    FUZZ_CLAIM(kept <= id && catalog.same_as(kept) == kept);
    for (const auto& piece : catalog.pieces(id)) {
      FUZZ_CLAIM(piece.box.rank() == spec.shape.size());
      FUZZ_CLAIM(Box::whole(spec.shape).contains(piece.box));
      (void)catalog.encoding(piece.encoding);
      if (piece.place.site == Place::kLiteral) (void)catalog.literal(piece.place);
    }
    (void)catalog.flat(id);
  }
  for (const auto& key : catalog.value_keys()) FUZZ_CLAIM(catalog.value(key) != nullptr);
  FUZZ_CLAIM(catalog.entry_count() <= catalog.members().size());
  (void)catalog.total_bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto catalog = Catalog::deserialize(fuzz_view(data, size));
  if (!catalog.ok()) {
    FUZZ_CLAIM(catalog.error().code == Code::kCorrupt);
    return 0;
  }
  walk(*catalog);
  Bytes bytes = catalog->serialize();
  auto again = Catalog::deserialize(bytes);
  FUZZ_CLAIM(again.ok());
  FUZZ_CLAIM(again->serialize() == bytes);
  return 0;
}
