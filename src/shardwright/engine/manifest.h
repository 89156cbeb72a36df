/// shardwright.manifest.json: checksums of a checkpoint, beside it, ignored by every other reader.
///
///   {"version": 1, "checkpoints": {"<entry point>": {
///      "content": {"<tensor>": {"dtype": "BF16", "shape": [2, 3], "hash": "<32 hex: ContentHash>"}},
///      "stored":  [{"file": "<key>", "offset": 0, "length": 12, "crc32c": "<8 hex>"}]}}}
///
/// The entry point is the index, or the single file; keys are sorted, so equal checkpoints have equal manifests.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardwright/engine/jobs.h"

namespace shardwright {

inline constexpr std::string_view kManifestName = "shardwright.manifest.json";

/// CRC-32C of a stored range.
struct StoredSum {
  std::string file;
  uint64_t offset = 0, length = 0;
  uint32_t crc32c = 0;
};
struct Manifest {
  std::map<std::string, TensorHash> content;
  std::vector<StoredSum> stored;
};

/// What was read of a checkpoint, to be put in a manifest or held against one.
/// Hashes every tensor and, for raw ones, sums their stored bytes in the same pass; encoded pieces are summed as stored. A tensor that
/// cannot be read goes to `failed` (when given) and is left out; else its error is returned.
Result<Manifest> survey(const Checkpoint& checkpoint, bool stored, const JobOptions& options,
                        std::vector<Error>* failed = nullptr);

/// The entry for this checkpoint; nullopt when there is no manifest or no entry. Errors: kCorrupt.
Result<std::optional<Manifest>> read_manifest(Store& store, std::string_view key, std::string_view entry);
/// Holds what was read back against what execute() wrote: a stored range whose checksum differs is kCorrupt.
/// written: the draft's objects, by which the receipts count; the checkpoint, opened again, may have them in another order.
Status check_receipts(const Checkpoint& checkpoint, const Manifest& manifest, std::span<const ObjectInfo> written,
                      const std::vector<Receipt>& receipts);
/// Puts the checkpoint's entry into the manifest beside it, in place of an older one; other entries stay.
Status write_manifest(const Checkpoint& checkpoint, const Manifest& manifest, const JobOptions& options);
/// The manifest at `key` without the entries of these files: nullopt when it has none of them, empty when nothing would be left.
Result<std::optional<Bytes>> manifest_without(Store& store, std::string_view key,
                                              const std::vector<std::string>& entries);
/// Name of this checkpoint's entry.
std::string manifest_entry(const Checkpoint& checkpoint);

}  // namespace shardwright
