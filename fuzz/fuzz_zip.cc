/// read_zip: any archive; the members it names lie within the archive and apart from one another.
#include <algorithm>
#include <vector>

#include "fuzz_support.h"
#include "shardwright/store/zip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  auto store = store_of("a.zip", fuzz_view(data, size));
  auto members = read_zip(*store, "a.zip");
  if (!members.ok()) return 0;
  std::sort(members->begin(), members->end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  uint64_t end = 0;
  for (const auto& member : *members) {
    if (member.stored_bytes == 0) continue;
    FUZZ_CLAIM(member.offset >= end);
    FUZZ_CLAIM(member.stored_bytes <= size && member.offset <= size - member.stored_bytes);
    FUZZ_CLAIM(member.method != 0 || member.stored_bytes == member.bytes);
    end = member.offset + member.stored_bytes;
  }
  return 0;
}
