#include "shardwright/store/recovery.h"

#include <thread>

#include "shardwright/store/directory.h"
#include "shardwright/store/journal.h"
#include "shardwright/store/staging.h"

namespace shardwright::detail {
namespace {

using Clock = std::chrono::steady_clock;

Error under_way(const std::string& directory) {
  return fail(Code::kUnavailable, "another process is replacing the files of this directory")
      .at_path(directory)
      .with_hint("run again when it has finished");
}

/// An error of finishing that stays with the journal in place.
Error cannot_finish(Error error, const std::string& directory) {
  bool read_only = error.code == Code::kPermission;
  if (read_only) error.code = Code::kUnavailable;
  if (error.hint.empty()) {
    error.hint = read_only
                     ? "run any shardwright command on it as a user who may write there: it will finish the replacement"
                     : "run again when this is repaired: it will finish the replacement";
  }
  return std::move(error).within("while finishing an interrupted replacement in '" + directory + "'");
}

/// Finishes the journal's replacement; true when it was this call that did it.
Result<bool> finish_replacement(const std::string& directory, Clock::time_point deadline) {
  while (true) {
    SHARDWRIGHT_ASSIGN(auto journal, read_journal(directory));
    if (!journal) return false;
    std::string path = directory + "/" + journal->replacement.staging;
    SHARDWRIGHT_ASSIGN(auto staging, Staging::adopt(path));
    bool gone = !staging && !Staging::is_owned(path);
    if (staging) {
      // Who had the lock until now may have finished in between.
      SHARDWRIGHT_ASSIGN(journal, read_journal(directory));
      if (!journal) return false;
    }
    if (staging || gone) {
      auto status = replace(directory, journal->replacement);
      if (status.ok()) status = remove_journal(directory);
      if (!status.ok()) return cannot_finish(std::move(status.error()), directory);
      if (staging) (void)staging->remove();  // what stays is dropped by the next who comes
      return true;
    }
    if (Clock::now() >= deadline) return under_way(directory);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool has_files(const std::string& directory) {
  auto names = names_in(directory);
  return names.ok() && !names->empty();
}

/// Removes what dead owners left; true when that was any data.
bool drop_dead(const std::string& parent, const std::string& prefix) {
  auto found = Staging::find(parent, prefix);
  if (!found.ok()) return false;
  bool dropped = false;
  for (const std::string& path : *found) {
    auto staging = Staging::adopt(path);
    if (!staging.ok() || !*staging) continue;
    bool data = has_files((*staging)->files());
    dropped |= (*staging)->remove().ok() && data;
  }
  return dropped;
}

}  // namespace

Result<std::optional<std::string>> recover_directory(const TargetDirectory& target,
                                                     std::chrono::milliseconds patience) {
  bool finished = false, dropped = false;
  if (target.present) {
    SHARDWRIGHT_ASSIGN(finished, finish_replacement(target.path, Clock::now() + patience));
    dropped = drop_dead(target.path, std::string(kStagingPrefix));
  }
  if (!target.name.empty()) dropped |= drop_dead(target.anchor, sibling_prefix(target.name));
  if (finished) {
    return std::optional<std::string>("An interrupted replacement of the files in '" + target.path +
                                      "' was finished: the new ones are in place.");
  }
  if (dropped) {
    return std::optional<std::string>("Unfinished files of an interrupted write to '" + target.path +
                                      "' were removed.");
  }
  return std::optional<std::string>();
}

}  // namespace shardwright::detail
