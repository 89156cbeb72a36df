/// kOffload.open on a folder whose index is any bytes, beside a file of 8 bytes `a.dat` and a good `m.safetensors` with tensors x and y.
#include "fuzz_support.h"
#include "shardwright/format/format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  auto store = store_of("m.safetensors", good_shard());
  put_object(*store, "a.dat", view_of("12345678"));
  put_object(*store, "index.json", fuzz_view(data, size));
  (void)kOffload.sniff(*store, "");
  (void)kOffload.members(*store, "");
  auto catalog = kOffload.open(*store, "", {});
  if (!catalog.ok()) return 0;
  // Nothing but what lies in the folder can come out.
  for (const auto& object : catalog->objects()) FUZZ_CLAIM(object.key == "a.dat" || object.key == "m.safetensors");
  for (TensorId id = 0; id < catalog->size(); ++id) FUZZ_CLAIM(catalog->flat(id)->place.length <= 8);
  return 0;
}
