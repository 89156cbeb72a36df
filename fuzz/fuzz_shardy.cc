/// Shardy's attributes, of meshes and of tensors: what is read is written so that it reads the same.
#include "fuzz_support.h"
#include "shardwright/layout/shardy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  std::string_view text = text_of(fuzz_view(data, size));
  if (auto mesh = parse_shardy_mesh(text); mesh.ok()) {
    auto again = parse_shardy_mesh(shardy_mesh_text(*mesh));
    FUZZ_CLAIM(again.ok() && *again == *mesh);
  }
  DeviceMesh mesh = *DeviceMesh::parse("a=2,b=4,one=1");
  auto layout = parse_shardy(text, mesh);
  if (!layout.ok()) return 0;
  FUZZ_CLAIM(check_layout(mesh, *layout).ok());
  auto again = parse_shardy(shardy_text(*layout, layout->dims.size()), mesh);
  FUZZ_CLAIM(again.ok() && *again == *layout);
  return 0;
}
