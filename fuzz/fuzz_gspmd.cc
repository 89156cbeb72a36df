/// XLA's sharding strings over three meshes: what is read is written so that it reads the same.
#include "fuzz_support.h"
#include "shardwright/layout/gspmd.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  std::string_view text = text_of(fuzz_view(data, size));
  for (const char* mesh_text : {"a=8", "a=2,b=4", "a=2,one=1,b=2,c=2"}) {
    DeviceMesh mesh = *DeviceMesh::parse(mesh_text);
    auto layout = parse_gspmd(text, mesh);
    if (!layout.ok()) continue;
    FUZZ_CLAIM(check_layout(mesh, *layout).ok());
    size_t rank = layout->dims.size();
    auto again = parse_gspmd(gspmd_text(mesh, *layout, rank), mesh);
    FUZZ_CLAIM(again.ok());
    again->dims.resize(rank);  // {replicated} has no rank
    FUZZ_CLAIM(*again == *layout);
  }
  return 0;
}
