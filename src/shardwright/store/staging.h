/// Directories of objects that are not published yet.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"
#include "shardwright/store/file_handle.h"

namespace shardwright::detail {

/// "<parent>/<prefix><id>/": the objects are in "files/", and "lock" is flock'ed for as long as the owner lives, so that a dead one can be
/// told from a slow one. id = "<pid>-<16 hex digits>"; nothing that does not look so is ever touched.
///
/// Objects whose final place is on another mount cannot be renamed there from here. They are staged beside that place, as
/// ".shardwright-<id>.<n>", and "files/<key>" is a link to it: so they are found, and removed, like the others.
class Staging {
 public:
  /// Makes one and takes its lock.
  static Result<Staging> create(const std::string& parent, const std::string& prefix);
  /// Takes over one that a crash left. nullopt: it is alive, gone, or not ours to lock.
  static Result<std::optional<Staging>> adopt(const std::string& path);
  /// True while it has a lock file: after adopt() gave nothing, this tells one that is alive from one that is gone or not of our making.
  static bool is_owned(const std::string& path);
  /// Paths of all with this prefix, alive or dead.
  static Result<std::vector<std::string>> find(const std::string& parent, const std::string& prefix);

  Staging(Staging&&) noexcept = default;
  Staging& operator=(Staging&&) noexcept;
  ~Staging();  ///< gives the lock back; removes nothing

  const std::string& path() const { return path_; }
  std::string files() const { return path_ + "/files"; }
  /// Removes everything, those staged elsewhere too, the lock last: until then nobody takes it for a new one.
  Status remove();

 private:
  Staging(std::string path, FileHandle lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  FileHandle lock_;
};

/// The prefix of stagings inside an existing directory.
inline constexpr std::string_view kStagingPrefix = ".shardwright-";
/// The prefix of stagings of a directory `name` that is not there yet, in its parent.
std::string sibling_prefix(std::string_view name);
/// True for "<pid>-<16 hex digits>".
bool is_staging_id(std::string_view id);

}  // namespace shardwright::detail
