/// The index of a sharded checkpoint (`model.safetensors.index.json`, `pytorch_model.bin.index.json`) as text: read and written without any I/O.
///
/// {"metadata": {"total_size": bytes of tensor data, ...}, "weight_map": {tensor name: file beside the index, ...}}. Seen in the wild and read too:
/// no or odd metadata, other keys beside the two, the map alone.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/json.h"
#include "shardwright/base/result.h"
#include "shardwright/format/hub_shards.h"

namespace shardwright {

/// `file` indexes HubIndex::files. Views die with the callback.
using HubIndexEntry = std::function<Status(std::string_view name, uint32_t file)>;

struct HubIndex {
  std::vector<std::string>
      files;  ///< in order of first appearance; checked: cannot leave the directory, end as `kind` says
  Json metadata = Json::object();  ///< as given, total_size included; empty when absent or no object
  bool odd_metadata = false;       ///< present but no object
  uint64_t entries = 0, name_bytes = 0;
};

/// Calls `entry` for each line of the map, in order; a name may come twice, that is the caller's to find. Memory: the file names and the metadata;
/// a plain index is scanned at memory speed, any other goes through a full parser.
/// Errors: kCorrupt with the offset: not JSON, no weight_map, a key given twice beside or in the metadata, a file name that is unsafe or of another
/// kind; kUnsupported for metadata over 32 MiB; and what `entry` returns.
Result<HubIndex> parse_hub_index(std::string_view text, const HubIndexEntry& entry,
                                 const HubKind& kind = kSafetensorsHub);

enum class HubIndexParser { kFast, kFull };
/// parse_hub_index by one of its two parsers alone, for tests. The fast one fails on all that is not plain.
Result<HubIndex> parse_hub_index_with(HubIndexParser parser, std::string_view text, const HubIndexEntry& entry,
                                      const HubKind& kind = kSafetensorsHub);

/// Writes an index byte for byte as huggingface_hub does (Python's json.dump with indent 2: ASCII only, insertion order, no newline at the end).
class HubIndexWriter {
 public:
  /// metadata: whole, with total_size.
  explicit HubIndexWriter(const Json& metadata);
  void add(std::string_view name, std::string_view file);
  Bytes finish();

 private:
  std::string out_;
  bool first_ = true;
};

}  // namespace shardwright
