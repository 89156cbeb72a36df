/// Which directories of an Orbax checkpoint hold what: the checkpoint itself, or a step with items.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/format/orbax_metadata.h"

namespace shardwright {

struct OrbaxLayout {
  struct Item {
    std::string name;                  ///< "" when the checkpoint itself is the item
    std::string directory;             ///< "" or "name/"
    bool ocdbt = false, tree = false;  ///< it has manifest.ocdbt, `_METADATA`
  };
  std::vector<Item> items;          ///< with arrays, by name
  std::vector<std::string> others;  ///< files of items without arrays, and loose ones: JSON, metrics, iterators
  OrbaxStep step;
  bool has_step = false;
};

/// Errors: kCorrupt for a save that was never finished (by name, or by its metadata and without commit_success.txt); kUnsupported for a directory of
/// steps, with the newest one that is whole; kNotFound for neither, and for databases of processes of which none was made; kCorrupt for a mark that
/// is no file.
Result<OrbaxLayout> find_orbax_layout(Store& store, const OpenOptions& options);

/// What find_orbax_layout would look into. Cheap: a few look-ups, and one listing when none of the marks is there.
Confidence sniff_orbax(Store& store, std::string_view at);
std::vector<std::string> orbax_members(Store& store, std::string_view at);

}  // namespace shardwright
