/// OCDBT databases: a store on a store. Values are ranges of the store below, or lie in the nodes.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/store/ocdbt_format.h"
#include "shardwright/store/store.h"

namespace shardwright {

/// Where a value is: in the node (`inline_value`, alive as long as its holder), or bytes of `file` of the store below.
struct OcdbtValue {
  std::string_view key;  ///< any bytes
  bool is_inline = false;
  View inline_value{};
  std::string_view file{};  ///< key in the store below
  uint64_t offset = 0, length = 0;
};

struct OcdbtOptions {
  uint64_t max_metadata_bytes = GiB;     ///< of a manifest, or of the nodes of one path of the tree, in memory
  uint64_t cache_bytes = 64 * MiB;       ///< of nodes kept for find(); walks keep only their own path
  std::optional<uint64_t> generation{};  ///< an older commit instead of the newest
};

/// Reads one commit of a database. Nothing is read that is not asked for: opening reads the manifest alone. Thread-safe.
class OcdbtDatabase {
 public:
  /// directory: "" or "dir/" in `base`, which outlives this. A single manifest or numbered ones; an older generation is looked up in the tree
  /// of versions. Errors: kNotFound (no manifest, no such generation); kCorrupt, kUnsupported with file and offset; what `base` says.
  static Result<std::unique_ptr<OcdbtDatabase>> open(Store& base, std::string_view directory,
                                                     const OcdbtOptions& options = {});

  const OcdbtManifest& manifest() const { return manifest_; }
  const OcdbtVersion& version() const { return version_; }
  const std::string& manifest_key() const { return manifest_key_; }

  /// Every value in key order. The value dies on return of visit(), whose error ends the walk.
  Status for_each(const std::function<Status(const OcdbtValue&)>& visit) const;
  /// Every node, parents first: its place, height and content, with the prefix of its keys.
  struct NodeVisit {
    std::string_view file, prefix;
    OcdbtRange range;
    const OcdbtNode& node;
  };
  Status for_each_node(const std::function<Status(const NodeVisit&)>& visit) const;
  /// All versions, oldest first, those of the version tree included.
  Result<std::vector<OcdbtVersion>> versions() const;

  /// nullopt when there is no such key. The value lives as long as `holder`.
  struct Found {
    OcdbtValue value;
    std::shared_ptr<const void> holder;
  };
  Result<std::optional<Found>> find(std::string_view key) const;

 private:
  struct Place {
    OcdbtFile file;
    OcdbtRange range;
  };
  struct Step {
    Place place;
    uint8_t height;
    std::string prefix, least;  ///< of the keys beneath; no key of the node is before `least`, which lacks the prefix
  };
  OcdbtDatabase(Store& base, std::string_view directory, const OcdbtOptions& options)
      : base_(base), directory_(directory), options_(options) {}
  Status read_manifest();
  Status choose_version();
  Status add_versions(const OcdbtVersionBranch& branch, const OcdbtFiles& files, std::vector<OcdbtVersion>* all,
                      std::optional<std::pair<OcdbtVersion, OcdbtFile>>* wanted) const;
  Result<std::string> key_of(const OcdbtFile& file) const;
  Result<Bytes> read_range(const Place& place) const;
  /// held: bytes of the nodes above that are kept meanwhile.
  Result<std::shared_ptr<const OcdbtNode>> read_node(const Step& step, uint64_t held = 0) const;
  /// Of one node or manifest in memory: TensorStore cuts nodes by the size that the configuration names.
  uint64_t node_limit() const;
  Result<std::shared_ptr<const OcdbtNode>> cached_node(const Step& step) const;
  static Step child_of(const Step& parent, const OcdbtNode& node, const OcdbtNode::Entry& entry);
  Status walk(const Step& step, uint64_t held, std::set<std::pair<std::string, uint64_t>>& seen,
              const std::function<Status(const Step&, const OcdbtNode&)>& visit) const;
  std::optional<Step> root() const;
  Error at(const Place& place, Error error) const;

  Store& base_;
  const std::string directory_;
  const OcdbtOptions options_;
  std::string manifest_key_;
  OcdbtManifest manifest_;
  OcdbtVersion version_;
  OcdbtFile root_file_;

  /// Nodes by place, the ones used last in front.
  using CacheKey = std::pair<std::string, uint64_t>;
  struct Cached {
    CacheKey key;
    std::shared_ptr<const OcdbtNode> node;
  };
  mutable std::mutex mutex_;
  mutable std::list<Cached> recent_;
  mutable std::map<CacheKey, std::list<Cached>::iterator> cache_;
  mutable uint64_t cached_bytes_ = 0;
};

/// The database as a store, read only: keys of any bytes, values by range. begin() and join() are kUnsupported.
/// base outlives the store; base.bytes_read() counts what this one reads.
Result<std::unique_ptr<Store>> open_ocdbt_store(Store& base, std::string_view directory,
                                                const OcdbtOptions& options = {});

/// What `ocdbt check` looks at beyond what every reader checks: statistics of every node against what is beneath it, and that every value and
/// node lies within its file. Every finding goes to `found`. Returns how many values there are.
Result<uint64_t> check_ocdbt(Store& base, std::string_view directory, const OcdbtOptions& options,
                             const std::function<void(const Error&)>& found);

}  // namespace shardwright
