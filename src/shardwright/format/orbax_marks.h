/// What tells that a directory is Orbax's: files in it, beside it and above it, and its real name.
#pragma once

#include <string_view>

#include "shardwright/store/store.h"

namespace shardwright {

/// Whether a file that tells something is there. Errors: kCorrupt for what stands in its place and is no file (a directory, a link to nothing),
/// kUnsupported for other things than files, and what the store says: none of these is "absent".
Result<bool> has_mark(Store& store, std::string_view key);
/// Anything of that name.
bool has_mark_of_any_kind(Store& store, std::string_view key);

/// True for an item, a step, a process's database, or an array within one. All that such a checkpoint was given is stored.
bool is_made_by_orbax(Store& store);
/// `ocdbt.process_N`: what one process wrote; chunks, and even metadata, of its arrays lie in those of others.
bool is_process_database(Store& store);
/// kCorrupt when the directory, or one of the two above it, has the name of a save that goes on or was cut off. Real names: links are followed.
Status refuse_unfinished_orbax(Store& store);
Error unfinished_orbax(Store& store);

inline constexpr std::string_view kMergeHint =
    "databases that processes wrote lie in ocdbt.process_*: `shardwright ocdbt merge` makes one of them, without "
    "copying a value";

}  // namespace shardwright
