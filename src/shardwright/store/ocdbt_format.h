/// OCDBT's manifest and nodes: bytes to structures. Pure; nothing is trusted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

inline constexpr uint64_t kOcdbtMaxKey = 65535, kOcdbtMaxInline = MiB;
inline constexpr std::string_view kOcdbtManifest = "manifest.ocdbt";

/// A file of the database, both parts below its root: relative paths within that file's nodes start at `base`.
struct OcdbtFile {
  std::string base, relative;
  std::string path() const { return base + relative; }
  bool operator==(const OcdbtFile&) const = default;
};
using OcdbtFiles = std::vector<OcdbtFile>;

/// Bytes [offset, offset + length) of files[file].
struct OcdbtRange {
  uint32_t file = 0;
  uint64_t offset = 0, length = 0;
  bool operator==(const OcdbtRange&) const = default;
};

struct OcdbtStatistics {
  uint64_t keys = 0, tree_bytes = 0, indirect_bytes = 0;
  bool operator==(const OcdbtStatistics&) const = default;
  OcdbtStatistics& operator+=(const OcdbtStatistics& other) {
    keys += other.keys;
    tree_bytes += other.tree_bytes;
    indirect_bytes += other.indirect_bytes;
    return *this;
  }
};

struct OcdbtConfig {
  std::array<std::byte, 16> uuid{};
  bool numbered = false;
  uint64_t max_inline_bytes = 100, max_node_bytes = 8 << 20;
  uint8_t arity_log2 = 4;
  std::optional<int32_t> zstd_level{};  ///< none: nodes are not compressed
  bool operator==(const OcdbtConfig&) const = default;
};

/// One commit. root: none for an empty database.
struct OcdbtVersion {
  uint64_t generation = 0;
  uint8_t height = 0;
  std::optional<OcdbtRange> root{};
  OcdbtStatistics statistics{};
  uint64_t commit_ns = 0;
};

/// A node of the tree of older versions. generation: the last one beneath it; commit_ns: of the first one.
struct OcdbtVersionBranch {
  uint64_t generation = 0;
  OcdbtRange node{};
  uint64_t versions = 0, commit_ns = 0;
  uint8_t height = 0;  ///< of the node referred to
};

struct OcdbtManifest {
  OcdbtConfig config;
  OcdbtFiles files;
  std::vector<OcdbtVersion> versions;  ///< the newest last; empty in the configuration of a numbered database
  std::vector<OcdbtVersionBranch> branches;
};
/// Errors, here and below: kCorrupt with the offset in `bytes`; kUnsupported for newer versions and unknown compressions;
/// kResourceExhausted past max_bytes, decoded, with all that is made of it.
Result<OcdbtManifest> parse_ocdbt_manifest(View bytes, uint64_t max_bytes = GiB);

struct OcdbtVersionNode {
  uint8_t arity_log2 = 0, height = 0;
  OcdbtFiles files;
  std::vector<OcdbtVersion> versions;        ///< height 0
  std::vector<OcdbtVersionBranch> branches;  ///< above
};
/// transitive: `base` of the file the node lies in.
Result<OcdbtVersionNode> parse_ocdbt_version_node(View bytes, const std::string& transitive, uint64_t max_bytes = GiB);

/// A node of the tree of keys. Keys lack the prefix that the path to the node adds.
class OcdbtNode {
 public:
  struct Entry {
    uint64_t key_offset;
    uint32_t key_bytes;
    uint32_t shared_bytes = 0;  ///< interior: so much of the key goes before every key of the child
    bool is_inline = false;     ///< leaf: the value is inline_offset.. of the body
    uint64_t inline_offset = 0;
    OcdbtRange range{};  ///< leaf: of the value, its length always; interior: of the child
    OcdbtStatistics statistics{};
  };
  uint8_t height() const { return height_; }
  const OcdbtFiles& files() const { return files_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::string_view key(const Entry& entry) const {
    return std::string_view(keys_).substr(entry.key_offset, entry.key_bytes);
  }
  View inline_value(const Entry& entry) const { return View(body_).subspan(entry.inline_offset, entry.range.length); }
  uint64_t memory_bytes() const;

 private:
  friend class OcdbtNodeParser;
  uint8_t height_ = 0;
  OcdbtFiles files_;
  std::string keys_;
  std::vector<Entry> entries_;
  Bytes body_;
};
Result<OcdbtNode> parse_ocdbt_node(View bytes, const std::string& transitive, uint64_t max_bytes = GiB);

}  // namespace shardwright
