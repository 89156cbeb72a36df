/// Orbax checkpoints to be written.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/format/format.h"
#include "shardwright/format/orbax_metadata.h"

namespace shardwright {

/// Value of a catalogue: what an Orbax checkpoint has beside its arrays, so that a copy has it again. JSON object {items: {NAME: {leaves: [[path, type,
/// skipped, write shape]], sharding, strings, random_keys, types, rich_types, custom, handler}}, handlers}; NAME is "" for a checkpoint of one item,
/// else tensors are named NAME/.... A path's keys are strings, or [string] within a sequence.
inline constexpr std::string_view kOrbaxValue = "orbax";

/// What --option says: "compression" none, zstd or zstd:LEVEL; "zarr" 2 or 3; "api" v0 or v1; "item" a name; "tree": a JSON text as kOrbaxValue has
/// it, instead of the catalogue's.
struct OrbaxSettings {
  bool zstd = false, zarr3 = false, version1 = false;
  int level = 1;
  std::string item, tree;
  static Result<OrbaxSettings> parse(const std::vector<std::pair<std::string, std::string>>& options);
};

/// One tree to be: its arrays, and what stands beside them.
struct OrbaxItem {
  std::string name, directory;  ///< "", "" or "state", "state/"
  OrbaxTree tree;
  std::vector<TensorId> tensors;
  std::vector<std::string> names;            ///< of the arrays in storage, as `tensors`
  std::vector<std::vector<int64_t>> chunks;  ///< as `tensors`
  std::vector<std::string> types;            ///< zarr's spelling, as `tensors`
  Json sharding = Json::object(), strings = Json::object();
  std::map<std::string, std::string> random_keys;
  std::string handler;
};
/// Sorts the tensors into items and gives each its place in a tree: that of the value kOrbaxValue where it names just these tensors, else one made
/// from the names. Errors: kUnsupported for types zarr has not and names that are not UTF-8.
/// options: of shardings and held boxes, by which chunks are cut.
Result<std::vector<OrbaxItem>> plan_orbax_items(const Catalog& want, const OrbaxSettings& settings,
                                                const WriteOptions& options, std::vector<std::string>& warnings);

Result<std::unique_ptr<Draft>> draft_orbax(const Catalog& want, const WriteOptions& options);

}  // namespace shardwright
