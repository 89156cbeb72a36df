/// parse_json: any text; what it takes must print and parse to the same value.
#include "fuzz_support.h"
#include "shardwright/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  auto parsed = parse_json(text_of(fuzz_view(data, size)));
  if (!parsed.ok()) {
    FUZZ_CLAIM(parsed.error().code == Code::kCorrupt);
    return 0;
  }
  auto again = parse_json(parsed->dump());
  FUZZ_CLAIM(again.ok());
  FUZZ_CLAIM(*again == *parsed);
  return 0;
}
