#include "shardwright/format/hdf5_handle.h"

#include <new>

namespace shardwright {
namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

herr_t keep_first(unsigned, const H5E_error2_t* entry, void* out) {
  auto& reason = *static_cast<std::string*>(out);
  if (reason.empty() && entry->desc != nullptr) reason = entry->desc;
  return 0;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
  // Per thread, so at every use. Plug-ins are code found through the environment; we never run the library's filters anyway.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

void Hdf5Lock::reset_after_fork() { new (&library_mutex()) std::recursive_mutex; }

Error hdf5_error(std::string message) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  H5Eclear2(H5E_DEFAULT);
  auto error = fail(Code::kCorrupt, std::move(message)).with_found(std::move(reason));
  if (!error.found.starts_with("bad version number")) return error;
  // Every structure carries a version; HDF5 2 with libver="latest" writes ones that older libraries refuse.
  error.code = Code::kUnsupported;
  error.expected =
      "structures of HDF5 " + std::to_string(H5_VERS_MAJOR) + "." + std::to_string(H5_VERS_MINOR) + " or older";
  error.hint = "write the file with an older format, e.g. h5py.File(..., libver=(\"earliest\", \"v110\"))";
  return error;
}

}  // namespace shardwright
