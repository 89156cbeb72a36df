/// One dataset of an HDF5 file as a tensor: what it holds and where its bytes lie.
#pragma once

#include <string>
#include <vector>

#include "shardwright/codec/codec.h"
#include "shardwright/format/catalog.h"
#include "shardwright/format/hdf5_reading_driver.h"

namespace shardwright {

struct Hdf5Tensor {
  std::string name;      ///< in the catalogue
  std::string path;      ///< of the dataset, without the first slash
  uint32_t group = 0;    ///< Hdf5Contents::groups
  uint64_t address = 0;  ///< of the object: equal for two names of one dataset
  DType dtype = DType::kU8;
  bool big_endian = false;
  std::vector<int64_t> shape;  ///< logical
  bool again = false;          ///< a further name of a dataset: nothing below is filled in
  /// kExtent: [offset, offset + length) of the region. kLiteral: all bytes in `literal`. kFill: every element is `literal`. kChunks: a grid, C
  /// order; those with length 0 are not allocated and hold `literal` in every element.
  enum Storage : uint8_t { kExtent, kLiteral, kFill, kChunks };
  Storage storage = kExtent;
  uint64_t offset = 0, length = 0;
  Bytes literal;
  std::vector<int64_t> chunk_shape;
  std::vector<CodecSpec> chain;  ///< as applied when written
  std::vector<Hdf5Input::Chunk> chunks;
};

/// The dataset holds something that is no tensor (strings, nothing at all); `text` says what.
struct Hdf5Skipped {
  std::string text;
};

/// Reads the metadata of an open dataset into `tensor` (all but name, path, group and address). Errors, without the place: kUnsupported
/// (external or virtual storage, filters, types), kCorrupt (sizes that contradict one another, shape bombs), those of the store.
/// opaque_as_bytes: see OpenOptions.
Result<std::optional<Hdf5Skipped>> read_hdf5_dataset(const Hdf5Input& input, hid_t dataset, Hdf5Tensor& tensor,
                                                     bool opaque_as_bytes = false);

/// Adds the tensor's pieces to the tensor that was added last. object, base: where the region lies.
Status add_hdf5_pieces(CatalogBuilder& builder, const Hdf5Tensor& tensor, ObjectId object, uint64_t base);

}  // namespace shardwright
