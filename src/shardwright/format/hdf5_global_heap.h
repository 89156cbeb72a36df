/// HDF5's global heaps, where variable-length strings lie. Parsed here: the library (1.10) believes their sizes, and loops or writes past its
/// buffers when they lie.
#pragma once

#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// What a stored variable-length value is: `length` bytes in object `index` of the collection at `address` (0: nothing).
struct Hdf5HeapReference {
  static constexpr size_t kBytes = 16;
  uint64_t address = 0;
  uint32_t length = 0, index = 0;
};
/// REQUIRES: kBytes bytes.
Hdf5HeapReference parse_heap_reference(View bytes);

/// An object of a collection; its bytes start at `offset` in it.
struct Hdf5HeapObject {
  uint32_t index;
  uint64_t offset, length;
};

constexpr size_t kHeapHeaderBytes = 16;
/// Bytes of the collection that begins like this. bytes: kHeapHeaderBytes. Errors: kCorrupt.
Result<uint64_t> parse_heap_header(View bytes);
/// Objects of a whole collection, in file order. Errors: kCorrupt for one that is not inside it.
Result<std::vector<Hdf5HeapObject>> parse_heap_objects(View collection);

}  // namespace shardwright
