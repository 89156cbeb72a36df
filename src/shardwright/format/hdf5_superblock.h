/// The first bytes of an HDF5 file: is it one, and is it whole?
#pragma once

#include <optional>
#include <string_view>

#include "shardwright/store/store.h"

namespace shardwright {

/// A part of an object of a store that is one whole HDF5 file: the object itself, or a stored member of an archive.
struct Hdf5Region {
  Store* store = nullptr;
  std::string key;
  uint64_t offset = 0, size = 0;  ///< bytes
};

/// The whole object `key`. Errors: kNotFound, those of the store.
Result<Hdf5Region> hdf5_region(Store& store, std::string_view key);

struct Hdf5Superblock {
  uint64_t offset = 0;  ///< of the signature: 0, or 512, 1024, 2048, ... behind a user block
  int version = 0;
  uint64_t end = 0;  ///< bytes the file must have, counted from the region's start
};

/// Parses a superblock. bytes: from the signature on, at least 64 or up to the end of the file; offset: where they lie.
/// nullopt without a signature. Errors: kCorrupt (short, addresses out of range), kUnsupported (version, sizes other than 8 bytes).
Result<std::optional<Hdf5Superblock>> parse_hdf5_superblock(View bytes, uint64_t offset);

/// Looks where the library looks. nullopt: no HDF5 file. Errors: those of parse and of the store.
Result<std::optional<Hdf5Superblock>> find_hdf5_superblock(const Hdf5Region& region);

}  // namespace shardwright
