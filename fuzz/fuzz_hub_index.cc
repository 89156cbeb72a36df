/// kSafetensors.open on a directory whose index is any bytes, beside one good shard `a.safetensors` with tensors x and y.
#include "fuzz_support.h"
#include "shardwright/format/format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  auto store = store_of("a.safetensors", good_shard());
  put_object(*store, "model.safetensors.index.json", fuzz_view(data, size));
  auto catalog = kSafetensors.open(*store, "", {});
  if (!catalog.ok()) return 0;
  // Only what the shard really holds can come out, and no object outside the directory.
  for (const auto& object : catalog->objects()) FUZZ_CLAIM(object.key == "a.safetensors");
  return 0;
}
