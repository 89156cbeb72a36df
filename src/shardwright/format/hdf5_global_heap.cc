#include "shardwright/format/hdf5_global_heap.h"

#include <string>

namespace shardwright {
namespace {

constexpr size_t kObjectHeaderBytes = 16;

}  // namespace

Hdf5HeapReference parse_heap_reference(View bytes) {
  Hdf5HeapReference out;
  out.length = load_le<uint32_t>(bytes);
  out.address = load_le<uint64_t>(bytes.subspan(4));
  out.index = load_le<uint32_t>(bytes.subspan(12));
  return out;
}

Result<uint64_t> parse_heap_header(View bytes) {
  if (text_of(bytes.first(4)) != "GCOL" || bytes[4] != std::byte{1})
    return fail(Code::kCorrupt, "no HDF5 global heap where a string should lie").with_expected("GCOL, version 1");
  auto size = load_le<uint64_t>(bytes.subspan(8));
  if (size < kHeapHeaderBytes)
    return fail(Code::kCorrupt, "HDF5 global heap smaller than its header").with_found(std::to_string(size) + " bytes");
  return size;
}

Result<std::vector<Hdf5HeapObject>> parse_heap_objects(View collection) {
  std::vector<Hdf5HeapObject> out;
  size_t at = kHeapHeaderBytes;
  while (collection.size() - at >= kObjectHeaderBytes) {
    uint32_t index = load_le<uint16_t>(collection.subspan(at));
    if (index == 0) break;  // the rest is free
    auto length = load_le<uint64_t>(collection.subspan(at + 8));
    at += kObjectHeaderBytes;
    if (length > collection.size() - at)
      return fail(Code::kCorrupt, "object of an HDF5 global heap is larger than the heap")
          .with_found(std::to_string(length) + " bytes")
          .with_expected("at most " + std::to_string(collection.size() - at));
    out.push_back({index, at, length});
    at += std::min<uint64_t>(round_up(length, 8), collection.size() - at);
  }
  return out;
}

}  // namespace shardwright
