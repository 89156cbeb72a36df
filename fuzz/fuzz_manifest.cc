/// read_manifest: any bytes beside a checkpoint; what it takes is the same after it was written again.
#include "fuzz_support.h"
#include "shardwright/engine/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  Checkpoint checkpoint;
  checkpoint.store = store_of(kManifestName, fuzz_view(data, size));
  CatalogBuilder builder;
  builder.set_members({"m"}, 1);
  checkpoint.catalog = *builder.build();
  auto first = read_manifest(*checkpoint.store, kManifestName, "m");
  if (!first.ok()) {
    FUZZ_CLAIM(first.error().code == Code::kCorrupt || first.error().code == Code::kUnsupported);
    return 0;
  }
  if (!*first) return 0;
  FUZZ_CLAIM(write_manifest(checkpoint, **first, {}).ok());
  auto again = read_manifest(*checkpoint.store, kManifestName, "m");
  FUZZ_CLAIM(again.ok() && again->has_value());
  FUZZ_CLAIM((*again)->content.size() == (*first)->content.size() &&
             (*again)->stored.size() == (*first)->stored.size());
  for (const auto& [name, row] : (*first)->content) {
    auto at = (*again)->content.find(name);
    FUZZ_CLAIM(at != (*again)->content.end() && at->second.shape == row.shape && at->second.dtype == row.dtype);
  }
  return 0;
}
