/// What torch.save wrote before 1.6: pickles with the storages behind them. Private to torch_file.cc.
#pragma once

#include "shardwright/format/torch_file.h"

namespace shardwright {

/// Five pickles: magic number, version, byte order, object, keys of the storages; then for each key the number of elements in 8 bytes and the elements.
Result<TorchFile> read_torch_legacy(Store& store, const std::string& key, const OpenOptions& options);

/// By the first 512 bytes. may_be: also forms that are refused by name: tar, other pickles.
bool is_torch_legacy(std::string_view head);
bool may_be_torch_legacy(std::string_view head);

}  // namespace shardwright
