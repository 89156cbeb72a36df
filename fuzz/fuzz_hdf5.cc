/// read_hdf5 through the reading driver: whatever the bytes, tensors lie inside the file and names are as the catalogue wants them.
#include "fuzz_support.h"
#include "shardwright/format/hdf5_reader.h"

namespace {

using namespace shardwright;

void check(const Catalog& catalog, uint64_t size) {
  for (TensorId id = 0; id < catalog.size(); ++id) {
    FUZZ_CLAIM(catalog.find(catalog.spec(id).name) == id);
    for (const auto& piece : catalog.pieces(id)) {
      if (piece.place.site != Place::kExtent) continue;
      FUZZ_CLAIM(piece.place.length <= size && piece.place.offset <= size - piece.place.length);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto store = store_of("a.h5", fuzz_view(data, size));
  std::vector<Error> findings;
  OpenOptions options;
  options.max_metadata_bytes = 16 * MiB;
  for (bool verify : {false, true}) {
    options.findings = verify ? &findings : nullptr;
    auto catalog = kHdf5.open(*store, "a.h5", options);
    if (catalog.ok()) check(*catalog, size);
  }
  return 0;
}
