// Orbax checkpoints: a tree of zarr arrays, in an OCDBT database or in files, with JSON beside it.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "shardwright/base/text.h"
#include "shardwright/format/orbax_draft.h"
#include "shardwright/format/orbax_layout.h"
#include "shardwright/format/orbax_marks.h"
#include "shardwright/format/zarr_chunks.h"
#include "shardwright/store/ocdbt_format.h"

namespace shardwright {
namespace {

/// Reads the items of one checkpoint into one catalogue.
class Opener {
 public:
  Opener(Store& store, const OpenOptions& options)
      : store_(store), options_(options), zarr_(store, builder_, limits(options)) {}

  Result<Catalog> open() {
    SHARDWRIGHT_ASSIGN(layout_, find_orbax_layout(store_, options_));
    bool several = layout_.items.size() > 1;
    Json items = Json::object();
    for (const auto& item : layout_.items) {
      Json kept = Json::object();
      SHARDWRIGHT_TRY(add_item(item, several ? item.name + "/" : "", kept));
      items[several ? item.name : ""] = std::move(kept);
    }
    builder_.tie_equal_extents();
    Json value = {{"items", std::move(items)}};
    builder_.set_value(std::string(kOrbaxValue), {Value::kJson, json_text(value)});
    if (!layout_.step.custom.empty()) builder_.set_value("metadata", {Value::kJson, json_text(layout_.step.custom)});
    for (const auto& key : layout_.others) builder_.add_side_file({key, key});
    auto members = orbax_members(store_, "");
    builder_.set_members(members, std::min<size_t>(1, members.size()));
    return builder_.build();
  }

 private:
  static ZarrCatalog::Limits limits(const OpenOptions& options) {
    ZarrCatalog::Limits limits;
    limits.max_metadata_bytes = options.max_metadata_bytes;
    return limits;
  }

  /// nullopt when there is no such file.
  Result<std::optional<std::string>> read_text(const std::string& key) {
    SHARDWRIGHT_ASSIGN(bool there, has_mark(store_, key));
    if (!there) return std::optional<std::string>();
    SHARDWRIGHT_ASSIGN(Bytes bytes, read_object(store_, key, options_.max_metadata_bytes));
    return std::optional(std::string(text_of(bytes)));
  }

  Status add_item(const OrbaxLayout::Item& item, const std::string& prefix, Json& kept) {
    std::unique_ptr<ZarrValues> values = zarr_values_in_files(store_, item.directory);
    if (item.ocdbt) {
      SHARDWRIGHT_ASSIGN(values, zarr_values_in_ocdbt(store_, item.directory, options_.max_metadata_bytes));
    }
    OrbaxTree tree;
    if (item.tree) {
      std::string key = item.directory + std::string(kOrbaxTree);
      SHARDWRIGHT_ASSIGN(auto text, read_text(key));
      auto parsed = parse_orbax_tree(*text);
      if (!parsed.ok()) return std::move(parsed.error()).at_path(store_.describe(key));
      tree = std::move(*parsed);
      // A tree of text alone, as Keras keeps the configuration of a model, says so too, and has none.
      bool arrays = std::ranges::any_of(tree.leaves, &OrbaxLeaf::has_array);
      if (arrays && tree.use_ocdbt.value_or(false) && !item.ocdbt) return missing_database(item);
      SHARDWRIGHT_TRY(add_leaves(item, prefix, tree, *values, kept));
    } else {
      SHARDWRIGHT_TRY(add_arrays(prefix, *values));
    }
    SHARDWRIGHT_TRY(keep_tree(item, tree, kept));
    return keep_beside(item, kept);
  }

  /// With a tree: its leaves, in its order.
  Status add_leaves(const OrbaxLayout::Item& item, const std::string& prefix, const OrbaxTree& tree, ZarrValues& values,
                    Json& kept) {
    std::unordered_set<std::string> known;
    Json types = Json::object();
    for (const auto& leaf : tree.leaves) {
      if (!leaf.has_array()) continue;
      std::string name = leaf.name();
      SHARDWRIGHT_ASSIGN(auto array, zarr_.read_array(values, name, tree.zarr3));
      if (!array) return missing_array(item, name);
      SHARDWRIGHT_TRY(zarr_.add(values, name, prefix + name, *array, !tree.missing_is_error));
      if (!array->stored_as.empty()) types[name] = array->stored_as;
      if (options_.remarked() != nullptr) known.insert(std::move(name));
    }
    if (!types.empty()) kept["types"] = std::move(types);
    if (options_.remarked() == nullptr) return {};
    SHARDWRIGHT_ASSIGN(auto keys, values.metadata_keys());
    for (const auto& key : keys)
      if (!known.contains(zarr_array_path(key)))
        options_.remark(
            fail(Code::kCorrupt, "an array is stored that the tree does not have").at_path(values.describe(key)));
    return {};
  }

  Error missing_array(const OrbaxLayout::Item& item, const std::string& name) {
    SHARDWRIGHT_ASSIGN(auto old, store_.size(item.directory + "checkpoint"));
    if (old)
      return fail(Code::kUnsupported, "values in one file 'checkpoint', as releases before 0.5 wrote them")
          .at_path(store_.describe(item.directory + "checkpoint"))
          .with_hint("restore and save it again with a later Orbax");
    return fail(Code::kNotFound, "the tree has an array that is not stored")
        .at_path(store_.describe(item.directory))
        .at_tensor(name);
  }

  Error missing_database(const OrbaxLayout::Item& item) {
    auto error = fail(Code::kNotFound, "the database of the checkpoint is missing")
                     .at_path(store_.describe(item.directory + std::string(kOcdbtManifest)));
    auto keys = store_.list(item.directory);
    bool parts = keys.ok() && std::ranges::any_of(*keys, [&](const auto& key) {
                   return std::string_view(key).substr(item.directory.size()).starts_with(kOrbaxProcess);
                 });
    return std::move(error).with_hint(parts ? std::string(kMergeHint) : "take the checkpoint from where it is whole");
  }

  /// Without a tree: arrays by their names in storage. Nothing says then that what is missing was left out, so all of it must be there.
  Status add_arrays(const std::string& prefix, ZarrValues& values) {
    SHARDWRIGHT_ASSIGN(auto keys, values.metadata_keys());
    for (const auto& key : keys) {
      std::string name = zarr_array_path(key);
      SHARDWRIGHT_ASSIGN(auto array, zarr_.read_array(values, name, false));
      SHARDWRIGHT_TRY(zarr_.add(values, name, prefix + name, *array, /*fill_missing=*/false));
    }
    return {};
  }

  /// What is no array of the tree, so that it can be written again.
  Status keep_tree(const OrbaxLayout::Item& item, const OrbaxTree& tree, Json& kept) {
    Json leaves = Json::array();
    for (const auto& leaf : tree.leaves) {
      Json path = Json::array();
      for (const auto& key : leaf.path)
        path.push_back(key.type == OrbaxKey::kDict ? Json(key.key) : Json::array({key.key}));
      Json kept_leaf = Json::array({std::move(path), leaf.type, leaf.skipped});
      if (!leaf.write_shape.empty()) kept_leaf.push_back(leaf.write_shape);
      leaves.push_back(std::move(kept_leaf));
    }
    if (!leaves.empty()) kept["leaves"] = std::move(leaves);
    if (!tree.rich_types.is_null()) kept["rich_types"] = tree.rich_types;
    if (!tree.custom.is_null()) kept["custom"] = tree.custom;
    auto handler = layout_.step.handlers.find(item.name);
    if (handler != layout_.step.handlers.end()) kept["handler"] = handler->second;
    return {};
  }

  /// Shardings, PRNG keys and strings.
  Status keep_beside(const OrbaxLayout::Item& item, Json& kept) {
    auto parse = [&](std::string_view name) -> Result<Json> {
      std::string key = item.directory + std::string(name);
      SHARDWRIGHT_ASSIGN(auto text, read_text(key));
      if (!text) return Json();
      auto json = parse_json(*text);
      if (!json.ok()) return std::move(json.error()).at_path(store_.describe(key));
      return json;
    };
    // Where the arrays were is only advice: what of it cannot be read is left out, with a word.
    auto shardings = parse(kOrbaxSharding);
    if (!shardings.ok())
      options_.remark(std::move(shardings.error()));
    else if (shardings->is_object() && !shardings->empty())
      kept["sharding"] = std::move(*shardings);
    SHARDWRIGHT_ASSIGN(auto strings, parse(kOrbaxStrings));
    if (strings.is_object()) kept["strings"] = std::move(strings);
    SHARDWRIGHT_ASSIGN(auto text, read_text(item.directory + std::string(kOrbaxArrays)));
    if (!text) return {};
    auto keys = parse_orbax_random_keys(*text);
    if (!keys.ok()) return std::move(keys.error()).at_path(store_.describe(item.directory + std::string(kOrbaxArrays)));
    if (!keys->empty()) kept["random_keys"] = *keys;
    return {};
  }

  Store& store_;
  const OpenOptions& options_;
  CatalogBuilder builder_;
  ZarrCatalog zarr_;
  OrbaxLayout layout_;
};

Result<Catalog> open(Store& store, std::string_view, const OpenOptions& options) {
  return Opener(store, options).open();
}

}  // namespace

const Format kOrbax = {
    .name = "orbax",
    .description = "Orbax: a JAX training state, zarr arrays in an OCDBT database",
    .extensions = "directory with _METADATA or _CHECKPOINT_METADATA",
    .can = {.write = true, .sharded = true, .ties = true, .metadata = true, .subbyte = false},
    .sniff = sniff_orbax,
    .open = open,
    .members = orbax_members,
    .draft = draft_orbax,
    .settings = "compression, zarr, api, item, tree",
};

}  // namespace shardwright
