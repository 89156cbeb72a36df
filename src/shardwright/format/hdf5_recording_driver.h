/// An HDF5 file written to memory: only the bytes the library itself writes (its metadata), whatever size the datasets have.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "shardwright/base/bytes.h"
#include "shardwright/format/hdf5_handle.h"

namespace shardwright {

/// What was written, in pages; bytes never written are zero. Memory: pages touched.
class Hdf5Recording {
 public:
  static constexpr uint64_t kPageBytes = 4 * KiB;
  using Page = std::array<std::byte, kPageBytes>;
  uint64_t size = 0;               ///< of the file, bytes
  std::map<uint64_t, Page> pages;  ///< by offset / kPageBytes
};

/// A file being created, as h5py creates one: oldest format, no times. REQUIRES: Hdf5Lock held from create() to finish().
class Hdf5Recorder {
 public:
  /// meta_block_bytes: metadata is allocated in blocks of that size; 0 = the library's default of 2 KiB.
  static Result<Hdf5Recorder> create(uint64_t meta_block_bytes);
  Hdf5Recorder(Hdf5Recorder&&) noexcept;
  ~Hdf5Recorder();
  hid_t file() const { return file_.get(); }
  /// Closes the file. REQUIRES: called once; identifiers into the file are closed.
  Result<Hdf5Recording> finish();

 private:
  Hdf5Recorder(std::unique_ptr<Hdf5Recording> recording, Hdf5File file);
  std::unique_ptr<Hdf5Recording> recording_;  // outlives the file
  Hdf5File file_;
};

}  // namespace shardwright
