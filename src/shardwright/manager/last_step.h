/// What the newest step has that the next one need not write again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardwright/engine/box_hashes.h"
#include "shardwright/manager/write_step.h"

namespace shardwright {

/// Dtype, shape, and the hash of every box by itself: what must be equal for a tensor not to have changed.
Json describe_tensors(const Catalog& tensors, const std::vector<std::vector<HashedBox>>& boxes);
/// What the manifest of an incremental step says beside the rest (see step_files.h):
///   {"item": "state", "format": "orbax", "options": [["zarr", "3"]], "tensors": {"<name>": ...}, "files": {"<key>": [<row>, ...]}}
/// A row is what lies in the file, in order: [tensor, piece or -1 for the whole, offset, length, CRC-32C or 0].
Json describe_contents(const StepContent& content, Json tensors, const Draft& draft,
                       const std::vector<Receipt>& receipts);

/// The newest complete step, as its manifest describes it.
class LastStep {
 public:
  /// nullopt: there is none, or not one of this format, options and item whose manifest describes it.
  static std::optional<LastStep> read(const std::string& root, const StepNames& names, const StepContent& content);
  struct File {
    std::string path;
    std::vector<Receipt> receipts;  ///< as if the object had been written
  };
  /// The file that is byte for byte what the object would be: the same tensors in the same places, none of which has changed, and the same
  /// literals (which are read). tensors: as describe_tensors() has them. nullopt: there is none, or nobody can tell.
  std::optional<File> find(const Draft& draft, ObjectId object, const Json& tensors) const;

 private:
  LastStep(std::string directory, Json contents);
  bool holds(const Json& rows, const Draft& draft, const std::vector<Segment>& segments, const Json& tensors) const;
  bool has_literals(const std::string& key, uint64_t size, const std::vector<Segment>& segments) const;

  std::string directory_;  ///< of the item
  Json contents_;
  std::map<std::pair<std::string, int64_t>, std::string> files_;  ///< by their first row
};

}  // namespace shardwright
