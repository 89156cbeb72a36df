/// The HDF5 library: identifiers that close themselves, the one lock, its errors as ours. hdf5.h is included here only.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

#include "shardwright/base/result.h"

namespace shardwright {

/// Held around every use of the library and of its identifiers: one thread at a time, its printing and its plug-ins off.
/// Re-entrant. Debian's build takes a global lock in each call anyway.
class Hdf5Lock {
 public:
  Hdf5Lock();
  /// In a forked child, by the only thread there is: the lock that its parent's thread held is free again.
  static void reset_after_fork();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// Owns one identifier; closed with `kClose`. REQUIRES: Hdf5Lock held when made, used and destroyed.
template <herr_t (*kClose)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(hid_t id) : id_(id) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Hdf5Handle() { close(); }
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }
  /// False when the library could not write what it still held.
  bool close() { return id_ < 0 || kClose(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using Hdf5File = Hdf5Handle<H5Fclose>;
using Hdf5Group = Hdf5Handle<H5Gclose>;
using Hdf5Object = Hdf5Handle<H5Oclose>;
using Hdf5Dataset = Hdf5Handle<H5Dclose>;
using Hdf5Type = Hdf5Handle<H5Tclose>;
using Hdf5Space = Hdf5Handle<H5Sclose>;
using Hdf5Attribute = Hdf5Handle<H5Aclose>;
using Hdf5Properties = Hdf5Handle<H5Pclose>;

/// kCorrupt, or kUnsupported for structures newer than the library: what we were doing, and as `found` the library's innermost reason of the call that failed last.
Error hdf5_error(std::string message);

}  // namespace shardwright
