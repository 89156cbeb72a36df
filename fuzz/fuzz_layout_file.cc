/// A layout file as JSON (its partition specs and texts with it), then a name looked up by its rules. First line: the name.
#include "fuzz_support.h"
#include "shardwright/layout/layout_file.h"
#include "shardwright/layout/partition_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  if (size > 4096) return 0;
  std::string_view text = text_of(fuzz_view(data, size));
  const size_t newline = text.find('\n');
  auto file = parse_json(newline == text.npos ? std::string_view{} : text.substr(newline + 1));
  if (!file.ok()) return 0;
  for (bool given : {false, true}) {
    auto map = parse_layout_file(*file, given ? std::optional(*DeviceMesh::parse("data=2,model=4")) : std::nullopt);
    if (!map.ok()) continue;
    for (const auto& rule : map->rules()) {
      auto again = parse_partition_spec(partition_spec_json(rule.layout));
      FUZZ_CLAIM(again.ok() && again->dims == rule.layout.dims);
    }
    std::string_view name = text.substr(0, newline);
    LayoutFinder finder(*map);
    const int64_t shape[] = {16, 24};
    auto laid = finder.lay_out(name, shape);
    if (!laid.ok()) continue;
    Box whole = Box::whole(shape);
    for (int64_t i = 0; i < std::min<int64_t>(map->mesh().size(), 64); ++i)
      FUZZ_CLAIM(whole.contains(laid->grid.box_of(i)));
  }
  return 0;
}
