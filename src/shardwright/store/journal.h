/// The file that makes a replacement all or nothing: once it is durable, the replacement is finished by whoever comes next.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwright/base/result.h"
#include "shardwright/store/replacement.h"

namespace shardwright::detail {

inline constexpr std::string_view kJournalName = ".shardwright-journal.json";

/// A journal is bound to its directory and staging by their inode numbers: one that came with a download or a copy describes a place
/// that is not here, and could otherwise be made to overwrite what links point to.
struct Journal {
  uint64_t directory_inode = 0, staging_inode = 0;
  Replacement replacement;

  std::string to_json() const;
  /// Trusts nothing: every name is a safe relative path, the staging one of ours. Errors: kCorrupt; kUnsupported for a later version.
  static Result<Journal> parse(std::string_view text);
};

/// Makes the journal durable: from here on the replacement happens. On failure there is none, unless removing it failed too (then
/// `left_behind` is set, and it must be taken for made).
Status write_journal(const std::string& directory, const Replacement& replacement, bool& left_behind);
/// nullopt when there is none. Errors: as parse; kCorrupt when it was made for another directory.
Result<std::optional<Journal>> read_journal(const std::string& directory);
/// Durable removal.
Status remove_journal(const std::string& directory);

}  // namespace shardwright::detail
