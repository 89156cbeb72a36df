/// parse_keras_index: files stay in their directory, and what is parsed can be written and parsed again.
#include "fuzz_support.h"
#include "shardwright/format/keras_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  auto index = parse_keras_index(text_of(fuzz_view(data, size)));
  if (!index.ok()) return 0;
  for (const auto& file : index->files)
    FUZZ_CLAIM(!file.empty() && file.find('/') == std::string::npos && file != ".." && file != ".");
  for (const auto& entry : index->entries) {
    FUZZ_CLAIM(!entry.files.empty());
    for (uint32_t file : entry.files) FUZZ_CLAIM(file < index->files.size());
  }
  auto again = parse_keras_index(format_keras_index(*index));
  FUZZ_CLAIM(again.ok() && again->files == index->files && again->entries.size() == index->entries.size());
  for (size_t i = 0; i < index->entries.size(); ++i) FUZZ_CLAIM(again->entries[i].group == index->entries[i].group);
  return 0;
}
