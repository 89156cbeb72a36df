#include "shardwright/format/orbax_marks.h"

#include <algorithm>
#include <filesystem>

#include "shardwright/format/orbax_metadata.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

/// "" for stores that are no directories: they describe what is no path.
fs::path real_path(Store& store) {
  std::error_code error;
  fs::path shown = store.describe(""), real = fs::canonical(shown, error);
  if (error) return {};
  return real.has_filename() ? real : real.parent_path();
}

bool stands(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

}  // namespace

Result<bool> has_mark(Store& store, std::string_view key) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (size) return true;
  if (!stands(store.describe(key))) return false;
  return fail(Code::kCorrupt, "is not a file that can be read")
      .at_path(store.describe(key))
      .with_found("a directory, or a link to nothing")
      .with_expected("a file, or nothing of that name");
}

bool has_mark_of_any_kind(Store& store, std::string_view key) {
  return has_object(store, key) || stands(store.describe(key));
}

bool is_made_by_orbax(Store& store) {
  auto there = [&](std::string_view mark) { return has_mark_of_any_kind(store, mark); };
  if (there(kOrbaxArrays) || std::ranges::any_of(kOrbaxFiles, there)) return true;
  if (is_process_database(store)) return true;
  // An array within an item; its name may have '/'.
  fs::path at = real_path(store);
  for (int up = 0; up < 3 && at.has_relative_path(); ++up) {
    at = at.parent_path();
    for (auto mark : {kOrbaxTree, kOrbaxSharding, kOrbaxArrays})
      if (stands(at / mark)) return true;
  }
  return false;
}

bool is_process_database(Store& store) { return real_path(store).filename().string().starts_with(kOrbaxProcess); }

Status refuse_unfinished_orbax(Store& store) {
  fs::path at = real_path(store);
  for (int up = 0; up < 3 && at.has_relative_path(); ++up, at = at.parent_path())
    if (at.filename().string().find(kOrbaxTemporary) != std::string::npos) return unfinished_orbax(store);
  return {};
}

Error unfinished_orbax(Store& store) {
  return fail(Code::kCorrupt, "an Orbax save that was never finished")
      .at_path(store.describe(""))
      .with_hint("take the last finished one; what is here may be cut off anywhere");
}

}  // namespace shardwright
