/// Where the values of zarr keys lie: each in a file of its own, or in an OCDBT database.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/store/store.h"

namespace shardwright {

/// Bytes of an object of the store, or inline ones that live as long as the ZarrValues.
struct ZarrValue {
  bool is_inline = false;
  View inline_value{};
  std::string object;
  uint64_t offset = 0, length = 0;
};

/// Keys below one directory of the store. Not thread-safe.
class ZarrValues {
 public:
  virtual ~ZarrValues() = default;
  /// nullopt when there is no such key.
  virtual Result<std::optional<ZarrValue>> find(std::string_view key) = 0;
  /// Keys whose last part is one of zarr's metadata names, in order.
  virtual Result<std::vector<std::string>> metadata_keys() = 0;
  /// Keys below an array, without its path and '/', in no order: for arrays of more places for chunks than one looks into.
  virtual Result<std::vector<std::string>> keys_below(std::string_view path) = 0;
  /// False where find() may find in directories below an array what keys_below() leaves out.
  virtual bool lists_directories() const = 0;
  /// A database that Orbax made, by its configuration.
  virtual bool made_by_orbax() const { return false; }
  virtual std::string describe(std::string_view key) const = 0;
};
/// Every bytes of a value, at most `cap`.
Result<Bytes> read_zarr_value(Store& store, const ZarrValue& value, uint64_t cap);

/// directory: "" or "dir/".
std::unique_ptr<ZarrValues> zarr_values_in_files(Store& store, std::string_view directory);
/// Reads the whole tree: about 60 bytes and the key for each value, and what lies in the nodes; kResourceExhausted past max_metadata_bytes of
/// that together.
Result<std::unique_ptr<ZarrValues>> zarr_values_in_ocdbt(Store& store, std::string_view directory,
                                                         uint64_t max_metadata_bytes);

/// A key below an array. A path that ends in '/' gets no second one, as in TensorStore.
std::string zarr_key(std::string_view path, std::string_view key);
/// True for ".zarray" and "zarr.json", also below an array's name.
bool is_zarr_metadata_key(std::string_view key);
/// Path of the array that such a key belongs to; "" for the root.
std::string zarr_array_path(std::string_view key);

}  // namespace shardwright
