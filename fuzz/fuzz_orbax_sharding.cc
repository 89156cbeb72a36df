/// Orbax's `_sharding`, one entry or the whole file: what is read is written so that it reads the same.
#include "fuzz_support.h"
#include "shardwright/layout/orbax_sharding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  std::string_view text = text_of(fuzz_view(data, size));
  if (auto entry = parse_orbax_sharding("name", text); entry.ok()) {
    FUZZ_CLAIM(!entry->mesh || check_layout(*entry->mesh, entry->layout).ok());
    auto written = orbax_sharding_text(*entry);
    // Ids that fit 64 bits unsigned but not signed are read and cannot be written.
    if (written.ok()) {
      auto again = parse_orbax_sharding("name", *written);
      FUZZ_CLAIM(again.ok() && *again == *entry);
    }
  }
  if (auto file = parse_orbax_shardings(text); file.ok()) {
    auto written = orbax_shardings_text(*file);
    if (!written.ok()) return 0;
    auto again = parse_orbax_shardings(*written);
    FUZZ_CLAIM(again.ok() && again->size() == file->size());
  }
  return 0;
}
