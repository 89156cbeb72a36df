/// Orbax's JSON files: any text. A tree that is accepted is written and read again as it was.
///
/// Input: one byte of kind (0 tree, 1 step, 2 random keys), then the text.
#include "fuzz_support.h"
#include "shardwright/base/text.h"
#include "shardwright/format/orbax_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  if (size == 0) return 0;
  std::string_view text = text_of(fuzz_view(data + 1, size - 1));
  if (data[0] % 3 == 1) {
    (void)parse_orbax_step(text);
    return 0;
  }
  if (data[0] % 3 == 2) {
    (void)parse_orbax_random_keys(text);
    return 0;
  }
  auto tree = parse_orbax_tree(text);
  if (!tree.ok()) return 0;
  auto again = parse_orbax_tree(orbax_tree_text(*tree, {}));
  FUZZ_CLAIM(again.ok());
  // Labels that a repr writes alike become one.
  FUZZ_CLAIM(again->leaves.size() <= tree->leaves.size());
  return 0;
}
