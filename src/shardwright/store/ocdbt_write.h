/// OCDBT databases to be: nodes and manifest from keys in order. Values in files are referred to, wherever they were written.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/store/ocdbt_format.h"
#include "shardwright/store/store.h"

namespace shardwright {

/// Makes the tree of one commit. Keys come in ascending order; nodes are cut where their decoded size would pass config.max_node_bytes.
/// The result depends on configuration, keys and values only. Memory: one open node per level, and the nodes made.
class OcdbtTreeBuilder {
 public:
  /// node_file: the file that will hold nodes(), whose first byte will lie at `node_offset` in it.
  OcdbtTreeBuilder(OcdbtConfig config, OcdbtFile node_file, uint64_t node_offset = 0);
  /// A value in the node. Errors: kInvalidArgument for keys out of order or too long, and values over kOcdbtMaxInline.
  Status add(std::string_view key, View value);
  /// A value in a file.
  Status add(std::string_view key, const OcdbtFile& file, uint64_t offset, uint64_t length);
  /// Ends the tree: the version, whose root (if any) lies in node_file; generation and time are the caller's to set.
  Result<OcdbtVersion> finish();
  /// What goes into node_file.
  const Bytes& nodes() const { return nodes_; }

 private:
  struct Entry {
    std::string key;  ///< whole
    std::string value;
    bool is_inline = false;
    OcdbtFile file{};
    uint64_t offset = 0, length = 0;
    OcdbtStatistics statistics{};
    size_t shared = 0;  ///< interior: so much of the key goes before the keys of the child
  };
  struct Level {
    std::vector<Entry> open;
    uint64_t bytes = 0;  ///< decoded size of what is open
    bool cut = false;    ///< nodes of this level were made before
  };
  Status put(size_t level, Entry entry);
  Status cut(size_t level, bool root);
  void append_keys(Bytes& out, size_t level, size_t skip) const;
  Bytes body_of(size_t level, size_t skip) const;

  OcdbtConfig config_;
  OcdbtFile node_file_;
  uint64_t node_offset_;
  std::vector<Level> levels_;
  std::string last_key_;
  bool any_ = false;
  Bytes nodes_;
  OcdbtVersion version_;
};

/// The values of several databases below one directory as one: those in nodes are copied, those in files referred to where they are.
/// base, directory: the database to be ("" or "dir/"); children: directories below it, each with '/' at its end ("ocdbt.process_0/").
/// Adds every value to `builder`. Memory: 100 bytes and the key for each, and what lies in nodes.
/// Errors: kCorrupt for a key that two of them have, with both; those of reading a child.
Status merge_ocdbt(Store& base, std::string_view directory, std::span<const std::string> children,
                   OcdbtTreeBuilder& builder);

/// The manifest of a database of one commit. REQUIRES: version.root, if any, lies in `node_file`.
Result<Bytes> make_ocdbt_manifest(const OcdbtConfig& config, const OcdbtVersion& version, const OcdbtFile& node_file);

}  // namespace shardwright
