/// Where a copy goes: what the target path means, and what stands there now.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/engine/jobs.h"

namespace shardwright {

/// Where nobody says how large shards may be.
inline constexpr uint64_t kDefaultShardBytes = 5'000'000'000;
/// What a checkpoint of this format is called in a directory; "" for those that are directories themselves.
std::string_view default_name(std::string_view format);

struct Target {
  std::shared_ptr<Store> store;  ///< rooted at the parent of `directory`
  std::string directory;         ///< `under` of the transaction: "" = the store's root itself
  std::string name;              ///< WriteOptions::name; "" = the directory's standard names
  const Format* format = nullptr;
  uint64_t max_shard_bytes = kUnknown;
  bool is_directory = false;  ///< a directory of its own: side files go along
  bool exists = false;        ///< something that would be replaced
  bool own_source = false;    ///< it is the source
  /// Of what is there now, relative to the directory, entries first. In a directory the sets of all formats: a reader may begin with any.
  std::vector<std::string> old_members;
  size_t old_entries = 0;
  std::optional<std::string> recovered;  ///< what was finished or dropped there first: a sentence for the user
  /// Key in the transaction -> key in the store.
  std::string store_key(std::string_view key) const;
};

/// Errors: kInvalidArgument (unknown or read-only format, a limit for a single file, target inside the source), kNotFound (no parent
/// directory), kAlreadyExists (a checkpoint is there, not the source, and overwrite was not said).
Result<Target> resolve_target(const CopyRequest& request, const Checkpoint& source);

}  // namespace shardwright
