/// HDF5's view of a region of a store: the library reads metadata through us, so an .h5 opens inside an archive or over ranges.
#pragma once

#include <memory>
#include <optional>

#include "shardwright/format/hdf5_handle.h"
#include "shardwright/format/hdf5_superblock.h"

namespace shardwright {

constexpr size_t kMaxHdf5TextBytes = 64 * KiB;  ///< of an attribute; HDF5's headers hold no more

/// An HDF5 file opened for reading. Only metadata goes through the library, and no global heap (hdf5_global_heap.h); a cache of 4 KiB blocks (4 MiB) stands between it and the store.
/// REQUIRES: Hdf5Lock held by the user from open() to destruction.
class Hdf5Input {
 public:
  /// Errors: kCorrupt for what the library refuses, kResourceExhausted when it asks for more than max_metadata_bytes at once, those of the
  /// store (kept by the driver while the library unwinds).
  static Result<Hdf5Input> open(const Hdf5Region& region, uint64_t max_metadata_bytes);
  Hdf5Input(Hdf5Input&&) noexcept;
  ~Hdf5Input();

  hid_t file() const { return file_.get(); }
  /// After a library call failed: the store's error when there was one, else what the library says.
  Error error(std::string message) const;

  /// Where a chunk is stored. nullopt: not allocated. REQUIRES: the dataset has some allocated chunk (H5Dget_space_status). O(log chunks), against the O(chunks) of H5Dget_chunk_info_by_coord.
  struct Chunk {
    uint64_t offset, length;  ///< bytes in the region
    uint32_t filter_mask;     ///< bit i: filter i was left out
  };
  Result<std::optional<Chunk>> chunk(hid_t dataset, const hsize_t* first_element) const;

  /// A variable-length string by its stored reference, up to its first NUL. Errors: kCorrupt for a heap that lies, kResourceExhausted for
  /// one string over 64 KiB, or when heaps overlap so that reading them would take far more than the file's size.
  Result<std::string> heap_text(View reference) const;

  struct State;

 private:
  Hdf5Input(std::unique_ptr<State> state, Hdf5File file);
  std::unique_ptr<State> state_;  // outlives the file
  Hdf5File file_;
};

}  // namespace shardwright
