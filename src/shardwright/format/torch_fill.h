/// Tensors of torch files into one catalogue. Private to torch_format.cc.
#pragma once

#include <map>
#include <string>

#include "shardwright/format/hub_open.h"
#include "shardwright/format/torch_file.h"

namespace shardwright {

/// Keys of Catalog::value: numbers and texts of the tree by name; and what is opaque, by name.
inline constexpr std::string_view kTorchValues = "torch.values", kOpaqueValue = "opaque";

class TorchFill : public HubFill {
 public:
  TorchFill(Store& store, const OpenOptions& options) : store_(store), options_(options) {}
  /// One file. Errors carry its path.
  Status add(const std::string& key, const std::function<void(std::string_view name, TensorId id)>& seen = {});

  void expect_notes(const Json& metadata) override { metadata_ = metadata; }
  Status add_files(std::span<const std::string> keys, const Seen& seen, const Done& done) override;
  /// Ties; the other values; and says what is left out, where a copy wants to know.
  Status finish() override;

 private:
  Status add_tensor(const TorchFile& file, ObjectId object, const TorchTensor& tensor);
  Store& store_;
  const OpenOptions& options_;
  Json metadata_ = Json::object();
  TorchOther other_;
};

}  // namespace shardwright
