#include "shardwright/format/orbax_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

Error corrupt(const std::string& what) { return fail(Code::kCorrupt, "Orbax tree: " + what); }

bool truth(const Json& value, bool otherwise) { return value.is_boolean() ? value.get<bool>() : otherwise; }

Result<OrbaxLeaf> parse_leaf(const Json& entry) {
  OrbaxLeaf leaf;
  const Json &keys = json_member(entry, "key_metadata"), &value = json_member(entry, "value_metadata");
  if (!keys.is_array() || !value.is_object()) return corrupt("a leaf without keys or value");
  for (const auto& key : keys) {
    const Json &name = json_member(key, "key"), &type = json_member(key, "key_type");
    if (!name.is_string() || (type != OrbaxKey::kSequence && type != OrbaxKey::kDict))
      return corrupt("a key of another kind than 1 and 2").with_found(key.dump());
    leaf.path.push_back({name.get<std::string>(), type == OrbaxKey::kDict ? OrbaxKey::kDict : OrbaxKey::kSequence});
  }
  if (!json_member(value, "value_type").is_string()) return corrupt("a leaf without type");
  leaf.type = json_member(value, "value_type").get<std::string>();
  for (const auto& extent : json_member(value, "write_shape"))
    if (extent.is_number_integer()) leaf.write_shape.push_back(extent.get<int64_t>());
  leaf.skipped = truth(json_member(value, "skip_deserialize"), false);
  return leaf;
}

Json leaf_json(const OrbaxLeaf& leaf, const std::vector<int64_t>* write_shape) {
  Json keys = Json::array();
  for (const auto& key : leaf.path) keys.push_back({{"key", key.key}, {"key_type", static_cast<int>(key.type)}});
  Json value = {{"value_type", leaf.type}, {"skip_deserialize", leaf.skipped}};
  if (write_shape != nullptr && leaf.type == "jax.Array") value["write_shape"] = *write_shape;
  return {{"key_metadata", std::move(keys)}, {"value_metadata", std::move(value)}};
}

/// Python's repr of a str. Beyond ASCII only the control characters are escaped: it is a label, no reader takes it apart.
std::string python_repr(std::string_view text) {
  char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (unsigned char c : text) {
    if (c == static_cast<unsigned char>(quote) || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c < 32 || c == 127)
      out += fmt::format("\\x{:02x}", c);
    else
      out += static_cast<char>(c);
  }
  return out + quote;
}

}  // namespace

std::string OrbaxLeaf::name() const {
  std::string name;
  for (size_t i = 0; i < path.size(); ++i) (name += i == 0 ? "" : ".") += path[i].key;
  return name;
}

Result<OrbaxTree> parse_orbax_tree(std::string_view text) {
  SHARDWRIGHT_ASSIGN(Json json, parse_json(text));
  const Json& entries = json_member(json, "tree_metadata");
  if (!entries.is_object()) return corrupt("'tree_metadata' is no object");
  OrbaxTree tree;
  std::unordered_set<std::string> names;
  for (const auto& [label, entry] : entries.items()) {
    SHARDWRIGHT_ASSIGN(auto leaf, parse_leaf(entry));
    if (leaf.has_array() && !names.insert(leaf.name()).second)
      return corrupt("two leaves have one name in storage, so one array was stored for both")
          .at_tensor(leaf.name())
          .with_hint("rename one of them where the checkpoint is saved: dots in keys make such names");
    tree.leaves.push_back(std::move(leaf));
  }
  if (const Json& flag = json_member(json, "use_ocdbt"); flag.is_boolean()) tree.use_ocdbt = flag.get<bool>();
  tree.zarr3 = truth(json_member(json, "use_zarr3"), false);
  tree.missing_is_error = truth(json_member(json, "store_array_data_equal_to_fill_value"), false);
  tree.rich_types = json_member(json, "value_metadata_tree");
  tree.custom = json_member(json, "custom_metadata");
  return tree;
}

std::string orbax_tree_text(const OrbaxTree& tree, const std::map<std::string, std::vector<int64_t>>& write_shapes) {
  Json entries = Json::object();
  for (const auto& leaf : tree.leaves) {
    auto shape = write_shapes.find(leaf.name());
    entries[orbax_path_repr(leaf.path)] = leaf_json(leaf, shape == write_shapes.end() ? nullptr : &shape->second);
  }
  Json json = {{"tree_metadata", std::move(entries)},
               {"use_ocdbt", tree.use_ocdbt.value_or(true)},
               {"use_zarr3", tree.zarr3},
               {"store_array_data_equal_to_fill_value", tree.missing_is_error},
               {"custom_metadata", tree.custom}};
  if (!tree.rich_types.is_null()) json["value_metadata_tree"] = tree.rich_types;
  return json_text(json);
}

std::string orbax_path_repr(const OrbaxPath& path) {
  std::string out = "(";
  for (size_t i = 0; i < path.size(); ++i) (out += i == 0 ? "" : ", ") += python_repr(path[i].key);
  return out + (path.size() == 1 ? ",)" : ")");
}

Result<std::map<std::string, std::string>> parse_orbax_random_keys(std::string_view text) {
  SHARDWRIGHT_ASSIGN(Json json, parse_json(text));
  std::map<std::string, std::string> out;
  const Json& arrays = json_member(json, "array_metadatas");
  if (!arrays.is_array()) return corrupt("'array_metadatas' is no list");
  for (const auto& entry : arrays) {
    const Json& array = json_member(entry, "array_metadata");
    const Json &name = json_member(array, "param_name"),
               &implementation = json_member(json_member(array, "ext_metadata"), "random_key_impl");
    if (name.is_string() && implementation.is_string())
      out[name.get<std::string>()] = implementation.get<std::string>();
  }
  return out;
}

std::string orbax_arrays_text(const std::vector<OrbaxArrayNote>& arrays) {
  Json list = Json::array();
  for (const auto& array : arrays) {
    Json extra = array.random_key.empty() ? Json() : Json{{"random_key_impl", array.random_key}};
    list.push_back({{"array_metadata",
                     {{"param_name", array.name},
                      {"write_shape", array.shape},
                      {"chunk_shape", array.shape},
                      {"ext_metadata", extra}}}});
  }
  return json_text({{"array_metadatas", std::move(list)}});
}

Result<OrbaxStep> parse_orbax_step(std::string_view text) {
  SHARDWRIGHT_ASSIGN(Json json, parse_json(text));
  if (!json.is_object()) return fail(Code::kCorrupt, "Orbax's checkpoint metadata is no JSON object");
  OrbaxStep step;
  const Json& handlers = json_member(json, "item_handlers");
  if (handlers.is_string()) step.handlers[""] = handlers.get<std::string>();
  if (handlers.is_object())
    for (const auto& [item, handler] : handlers.items())
      step.handlers[item] = handler.is_string() ? handler.get<std::string>() : "";
  // Null until the save is done; files of other hands may lack it.
  step.committed = !json.contains("commit_timestamp_nsecs") || !json_member(json, "commit_timestamp_nsecs").is_null();
  if (const Json& custom = json_member(json, "custom_metadata"); custom.is_object()) step.custom = custom;
  return step;
}

std::string orbax_step_text(const std::map<std::string, std::string>& handlers, uint64_t time_ns, const Json& custom) {
  Json items = Json::object();
  if (handlers.contains(""))
    items = handlers.at("");
  else
    for (const auto& [item, handler] : handlers) items[item] = handler;
  return json_text({{"item_handlers", std::move(items)},
                    {"metrics", Json::object()},
                    {"performance_metrics", Json::object()},
                    {"init_timestamp_nsecs", time_ns},
                    {"commit_timestamp_nsecs", time_ns},
                    {"custom_metadata", custom}});
}

std::vector<OrbaxPath> orbax_paths_of_names(const std::vector<std::string>& names, bool& nested) {
  std::vector<OrbaxPath> paths;
  for (const auto& name : names) {
    OrbaxPath& path = paths.emplace_back();
    for (size_t at = 0; at <= name.size();) {
      size_t dot = std::min(name.find('.', at), name.size());
      path.push_back({name.substr(at, dot - at)});
      at = dot + 1;
    }
  }
  // "a" and "a.b": a leaf cannot be a dict as well.
  auto dotted = [](const std::string& name) { return name + '.'; };
  std::vector<std::string> sorted;
  for (const auto& name : names) sorted.push_back(dotted(name));
  std::sort(sorted.begin(), sorted.end());
  nested = true;
  for (size_t i = 1; i < sorted.size(); ++i) nested = nested && !sorted[i].starts_with(sorted[i - 1]);
  // Keys that a Python repr writes alike, or none at all, are told apart by whole names.
  if (nested) return paths;
  for (size_t i = 0; i < names.size(); ++i) paths[i] = {{names[i]}};
  return paths;
}

}  // namespace shardwright
