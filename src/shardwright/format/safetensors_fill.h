/// Tensors of safetensors headers into one catalogue. Private to safetensors_format.cc and hub_open.cc.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shardwright/base/json.h"
#include "shardwright/format/catalog.h"
#include "shardwright/format/format.h"
#include "shardwright/format/safetensors_file.h"

namespace shardwright {

/// Order of calls: expect_notes, add for every file, finish.
class SafetensorsFill {
 public:
  SafetensorsFill(Store& store, const OpenOptions& options) : store_(store), options_(options) {}
  CatalogBuilder builder;

  /// Metadata that may say "this name is a tie of that one": the hub removes shared tensors from the file and notes metadata[removed] = kept.
  /// It comes first in the catalogue's metadata.
  void expect_notes(const Json& metadata);
  /// Adds the file's tensors, and its metadata where a key is new. `seen` is called with each name.
  using Seen = std::function<void(std::string_view name, TensorId id)>;
  Status add(const SafetensorsFile& file, ObjectId object, const Seen& seen = {});
  /// Ties whose kept name is there and whose alias is not; the other metadata becomes the value "metadata".
  Status finish();

  uint64_t data_bytes() const { return data_bytes_; }  ///< of tensors added

 private:
  struct Kept {
    TensorId id = kNoTensor;
    DType dtype = DType::kU8;
    std::vector<int64_t> shape;
  };
  void look_for_notes(const SafetensorsEntry& entry, TensorId id);
  Store& store_;
  const OpenOptions& options_;
  bool has_metadata_ = false;
  Json metadata_ = Json::object();
  std::map<std::string, std::string, std::less<>> notes_;  ///< alias -> kept
  std::map<std::string, Kept, std::less<>> kept_;          ///< by name
  uint64_t data_bytes_ = 0;
};

/// One file; side files too when it stands for its directory.
Result<Catalog> open_safetensors_file(Store& store, const std::string& key, bool directory, const OpenOptions& options);

}  // namespace shardwright
