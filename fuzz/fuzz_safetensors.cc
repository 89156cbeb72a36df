/// kSafetensors.open on any bytes as a file; every extent it names lies within the file.
#include "fuzz_support.h"
#include "shardwright/format/format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  auto store = store_of("model.safetensors", fuzz_view(data, size));
  auto catalog = kSafetensors.open(*store, "model.safetensors", {});
  if (!catalog.ok()) return 0;
  for (TensorId id = 0; id < catalog->size(); ++id) {
    FUZZ_CLAIM(catalog->find(catalog->spec(id).name) == id);
    auto flat = catalog->flat(id);
    if (!flat || flat->place.site != Place::kExtent) continue;
    FUZZ_CLAIM(flat->place.length <= size && flat->place.offset <= size - flat->place.length);
    FUZZ_CLAIM(flat->place.length == catalog->spec(id).nbytes());
  }
  return 0;
}
