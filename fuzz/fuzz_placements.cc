/// DTensor placements over three meshes: what is read is written so that it reads the same.
#include "fuzz_support.h"
#include "shardwright/layout/torch_placements.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  std::string_view text = text_of(fuzz_view(data, size));
  for (const char* mesh_text : {"a=8", "a=2,b=4", "a=2,b=3,c=2"}) {
    DeviceMesh mesh = *DeviceMesh::parse(mesh_text);
    auto layout = parse_placements(text, mesh);
    if (!layout.ok()) continue;
    FUZZ_CLAIM(check_layout(mesh, *layout).ok());
    auto again = parse_placements(placements_text(mesh, *layout), mesh);
    FUZZ_CLAIM(again.ok() && *again == *layout);
  }
  return 0;
}
