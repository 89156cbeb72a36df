/// Files of torch.save to be written. Private to torch_format.cc.
#pragma once

#include <memory>

#include "shardwright/format/format.h"

namespace shardwright {

/// Format::draft, in the zip form: a plain dictionary of contiguous tensors, each storage at a multiple of 64 bytes and with its checksum.
/// torch.load(weights_only=True, mmap=True) reads it. Names, the split and the index are those of huggingface_hub's save_torch_state_dict without
/// safetensors: ties share a storage, in the same shard.
/// Errors: kUnsupported: types that torch does not have, odd rows of 4-bit elements, names that are not UTF-8; kInvalidArgument as cut_hub.
Result<std::unique_ptr<Draft>> draft_torch(const Catalog& want, const WriteOptions& options);

}  // namespace shardwright
