/// Safetensors files to be written. Private to safetensors_format.cc.
#pragma once

#include <memory>

#include "shardwright/format/format.h"
#include "shardwright/format/safetensors_header.h"

namespace shardwright {

/// Format::draft. options.name "": model.safetensors, or numbered shards and model.safetensors.index.json; "X.safetensors.index.json": numbered shards X-... and that
/// index, always; any other name: one file. The split, the files and the index are those of huggingface_hub for the tensors in the order of `want`; ties are
/// stored once, under the name that holds the bytes in `want`, and noted as metadata[alias] = kept.
/// Errors: kInvalidArgument: tensors over the limit when strict (all named), a header over 100,000,000 bytes where one file is asked for, a
/// tensor called "__metadata__"; kUnsupported: a name that is not UTF-8.
Result<std::unique_ptr<Draft>> draft_safetensors(const Catalog& want, const WriteOptions& options);

/// draft_safetensors with other limits, for tests.
struct SafetensorsLimits {
  uint64_t header_bytes = kMaxSafetensorsHeader;
  uint64_t literal_bytes = 16 * MiB;  ///< of headers that are kept; if there are more, each is made when it is written
};
Result<std::unique_ptr<Draft>> draft_safetensors_within(const SafetensorsLimits& limits, const Catalog& want,
                                                        const WriteOptions& options);

}  // namespace shardwright
