/// Orbax's JSON files: which leaves a tree has, what they are called, and how a step was made. Pure; nothing is trusted.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/json.h"
#include "shardwright/base/result.h"

namespace shardwright {

inline constexpr std::string_view kOrbaxTree = "_METADATA", kOrbaxStep = "_CHECKPOINT_METADATA",
                                  kOrbaxSharding = "_sharding", kOrbaxStrings = "_strings.json",
                                  kOrbaxCommit = "commit_success.txt", kOrbaxVersion1 = "orbax.checkpoint",
                                  kOrbaxTemporary = ".orbax-checkpoint-tmp", kOrbaxArrays = "array_metadatas/process_0";
/// Begins the directory of what one process wrote; chunks, and even metadata, of its arrays lie in those of others.
inline constexpr std::string_view kOrbaxProcess = "ocdbt.process_";
/// Files of Orbax's own beside a database and its arrays, at the root or in an item.
inline constexpr std::string_view kOrbaxFiles[] = {kOrbaxTree,    kOrbaxStep,   kOrbaxSharding,
                                                   kOrbaxStrings, kOrbaxCommit, kOrbaxVersion1};
inline bool is_orbax_file(std::string_view name) {
  return std::ranges::find(kOrbaxFiles, name) != std::end(kOrbaxFiles);
}

/// One step of a path in a tree. On disk: never renumber.
struct OrbaxKey {
  enum Type : int { kSequence = 1, kDict = 2 };
  std::string key;
  Type type = kDict;
  bool operator==(const OrbaxKey&) const = default;
};
using OrbaxPath = std::vector<OrbaxKey>;

struct OrbaxLeaf {
  OrbaxPath path;
  std::string type;  ///< "jax.Array", "np.ndarray", "scalar", "string"; "Dict", "List", "Tuple", "None" are empty nodes
  bool skipped = false;                ///< nothing is stored for it
  std::vector<int64_t> write_shape{};  ///< of a jax.Array: what is written at once
  std::string name() const;            ///< keys joined by '.': what its array is called in storage
  bool has_array() const { return !skipped && type != "string"; }
};

struct OrbaxTree {
  std::vector<OrbaxLeaf> leaves;
  std::optional<bool> use_ocdbt{};
  bool zarr3 = false, missing_is_error = false;
  Json rich_types{};  ///< `value_metadata_tree`, a string; null when absent
  Json custom{};
};
/// Text of `_METADATA`. Errors: kCorrupt for what is none, and when two leaves with arrays have one name in storage: Orbax itself gives both the same
/// values then.
Result<OrbaxTree> parse_orbax_tree(std::string_view text);
std::string orbax_tree_text(const OrbaxTree& tree, const std::map<std::string, std::vector<int64_t>>& write_shapes);
/// Python's repr of the tuple of keys: what the file calls a leaf.
std::string orbax_path_repr(const OrbaxPath& path);

/// Names of typed PRNG keys and their implementation, from a file in `array_metadatas/`.
Result<std::map<std::string, std::string>> parse_orbax_random_keys(std::string_view text);
struct OrbaxArrayNote {
  std::string name;
  std::vector<int64_t> shape;  ///< of what is written at once: the chunk
  std::string random_key;      ///< implementation; "": none
};
std::string orbax_arrays_text(const std::vector<OrbaxArrayNote>& arrays);

struct OrbaxStep {
  std::map<std::string, std::string> handlers;  ///< item -> class; key "" when the checkpoint is one item
  bool committed = false;                       ///< no null where the time of commit will be
  Json custom = Json::object();
};
/// Text of `_CHECKPOINT_METADATA`.
Result<OrbaxStep> parse_orbax_step(std::string_view text);
std::string orbax_step_text(const std::map<std::string, std::string>& handlers, uint64_t time_ns, const Json& custom);

/// Trees for names of other formats: nested dicts by '.', or, where a name would be both leaf and dict, one dict of whole names.
/// `nested` tells which it was.
std::vector<OrbaxPath> orbax_paths_of_names(const std::vector<std::string>& names, bool& nested);

}  // namespace shardwright
