/// Tensors of safetensors headers into one catalogue. Private to safetensors_format.cc.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shardwright/base/json.h"
#include "shardwright/format/catalog.h"
#include "shardwright/format/format.h"
#include "shardwright/format/hub_open.h"
#include "shardwright/format/safetensors_file.h"

namespace shardwright {

class SafetensorsFill : public HubFill {
 public:
  SafetensorsFill(Store& store, const OpenOptions& options) : store_(store), options_(options) {}

  /// Metadata that may say "this name is a tie of that one": the hub removes shared tensors from the file and notes metadata[removed] = kept.
  /// It comes first in the catalogue's metadata.
  void expect_notes(const Json& metadata) override;
  /// Adds the file's tensors, and its metadata where a key is new. `seen` is called with each name.
  Status add(const SafetensorsFile& file, ObjectId object,
             const std::function<void(std::string_view name, TensorId id)>& seen = {});
  Status add_files(std::span<const std::string> keys, const Seen& seen, const Done& done) override;
  /// Ties whose kept name is there and whose alias is not; the other metadata becomes the value "metadata".
  Status finish() override;

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
};

/// One file; side files too when it stands for its directory.
Result<Catalog> open_safetensors_file(Store& store, const std::string& key, bool directory, const OpenOptions& options);

}  // namespace shardwright
