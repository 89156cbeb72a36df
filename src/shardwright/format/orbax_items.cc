// Which tree an Orbax checkpoint to be written has.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "shardwright/base/text.h"
#include "shardwright/format/orbax_draft.h"
#include "shardwright/format/zarr_metadata.h"
#include "shardwright/store/ocdbt_format.h"

namespace shardwright {
namespace {

constexpr std::string_view kStandardHandler =
    "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler";
constexpr std::string_view kVersion1Handler =
    "orbax.checkpoint.experimental.v1._src.handlers.pytree_handler.PyTreeHandler";

/// A leaf as kept in the value; its write shape, if any.
std::optional<std::pair<OrbaxLeaf, std::vector<int64_t>>> kept_leaf(const Json& json) {
  if (!json.is_array() || json.size() < 3 || !json[0].is_array() || !json[1].is_string() || !json[2].is_boolean())
    return std::nullopt;
  std::pair<OrbaxLeaf, std::vector<int64_t>> out;
  for (const auto& key : json[0]) {
    if (key.is_string())
      out.first.path.push_back({key.get<std::string>()});
    else if (key.is_array() && key.size() == 1 && key[0].is_string())
      out.first.path.push_back({key[0].get<std::string>(), OrbaxKey::kSequence});
    else
      return std::nullopt;
  }
  out.first.type = json[1].get<std::string>();
  out.first.skipped = json[2].get<bool>();
  if (json.size() > 3 && json[3].is_array())
    for (const auto& extent : json[3]) out.second.push_back(extent.is_number_integer() ? extent.get<int64_t>() : 0);
  return out;
}

class ItemMaker {
 public:
  ItemMaker(const Catalog& want, OrbaxItem item, const Json& kept, bool zarr3)
      : want_(want), item_(std::move(item)), kept_(kept), zarr3_(zarr3) {}

  Result<OrbaxItem> make(const WriteOptions& options, std::vector<std::string>& warnings) {
    for (size_t i = 0; i < item_.names.size(); ++i) {
      by_name_[item_.names[i]] = i;
      if (!is_utf8(item_.names[i]))
        return fail(Code::kUnsupported, "Orbax cannot hold a name that is not UTF-8").at_tensor(item_.names[i]);
      auto shape = want_.spec(item_.tensors[i]).shape;
      auto& chunk = item_.chunks.emplace_back(shape.begin(), shape.end());
      for (auto& extent : chunk) extent = std::max<int64_t>(extent, 1);
    }
    SHARDWRIGHT_TRY(choose_types());
    if (!take_kept_tree()) make_tree(warnings);
    if (!options.held.empty()) cut_as_held(options.held);
    if (!options.shardings.empty()) note(options.shardings);
    cut_ties_alike();
    item_.tree.use_ocdbt = true;
    item_.tree.zarr3 = zarr3_;
    item_.tree.missing_is_error = true;
    return std::move(item_);
  }

 private:
  Status choose_types() {
    const Json& small = json_member(kept_, "types");
    for (size_t i = 0; i < item_.tensors.size(); ++i) {
      auto spec = want_.spec(item_.tensors[i]);
      std::string type = zarr_type_name(spec.dtype, zarr3_);
      if (type.empty())
        return fail(Code::kUnsupported, fmt::format("zarr has no type {}", dtype_row(spec.dtype).name))
            .at_tensor(std::string(spec.name))
            .with_hint("--dtype casts it on the way");
      const Json& stored_as = json_member(small, item_.names[i]);
      ZarrArray array;
      if (stored_as.is_string() && detail::set_zarr_type(array, stored_as.get<std::string>()).ok() &&
          array.dtype == spec.dtype)
        type = stored_as.get<std::string>();
      item_.types.push_back(std::move(type));
    }
    return {};
  }

  /// The tree the tensors came from, if every one of them is in it.
  bool take_kept_tree() {
    const Json& leaves = json_member(kept_, "leaves");
    if (!leaves.is_array()) return false;
    std::vector<std::pair<OrbaxLeaf, std::vector<int64_t>>> all;
    size_t matched = 0, arrays = 0;
    for (const auto& json : leaves) {
      auto leaf = kept_leaf(json);
      if (!leaf) return false;
      arrays += leaf->first.has_array();
      matched += leaf->first.has_array() && by_name_.contains(leaf->first.name());
      all.push_back(std::move(*leaf));
    }
    if (matched != item_.tensors.size()) return false;
    const Json& strings = json_member(kept_, "strings");
    for (auto& [leaf, write_shape] : all) {
      if (leaf.has_array()) {
        take_array_leaf(std::move(leaf), write_shape);
        continue;
      }
      // A part of a tree has no use for the empty nodes of the rest.
      if (arrays != matched) continue;
      std::string name = leaf.name();
      if (leaf.type == "string" && json_member(strings, name).is_string())
        item_.strings[name] = json_member(strings, name);
      item_.tree.leaves.push_back(std::move(leaf));
    }
    if (arrays == matched) item_.tree.rich_types = json_member(kept_, "rich_types");
    item_.tree.custom = json_member(kept_, "custom");
    return true;
  }

  void take_array_leaf(OrbaxLeaf leaf, const std::vector<int64_t>& write_shape) {
    std::string name = leaf.name();
    auto at = by_name_.find(name);
    if (at == by_name_.end()) return;
    const Json& random = json_member(json_member(kept_, "random_keys"), name);
    if (random.is_string()) item_.random_keys[name] = random.get<std::string>();
    if (leaf.type == "jax.Array") {
      std::string encoded = base64url(name);
      // Without a sharding Orbax does not restore it as one unasked.
      const Json& sharding = json_member(json_member(kept_, "sharding"), encoded);
      if (sharding.is_string())
        item_.sharding[encoded] = sharding;
      else if (!random.is_string())
        leaf.type = "np.ndarray";
      take_chunk(at->second, write_shape);
    }
    item_.tree.leaves.push_back(std::move(leaf));
  }

  /// Boxes of one shape are chunks: then each rank writes its own.
  void cut_as_held(std::span<const std::vector<WriteOptions::Held>> held) {
    for (size_t i = 0; i < item_.tensors.size(); ++i) {
      const auto& boxes = held[item_.tensors[i]];
      if (boxes.size() < 2) continue;
      const auto& extent = boxes.front().box.extent;
      if (std::ranges::all_of(boxes, [&](const auto& one) { return one.box.extent == extent; })) take_chunk(i, extent);
    }
  }

  /// Arrays become those of a mesh; scalars of Python stay what they are.
  void note(std::span<const WriteOptions::Sharding> shardings) {
    for (auto& leaf : item_.tree.leaves) {
      if (!leaf.has_array() || leaf.type == "scalar") continue;
      std::string name = leaf.name();
      size_t i = by_name_.at(name);
      const auto& sharding = shardings[item_.tensors[i]];
      leaf.type = "jax.Array";
      item_.sharding[base64url(name)] = sharding.text;
      take_chunk(i, sharding.shard);
    }
  }

  /// Tied arrays share their chunks, so all are cut as the one that is kept, however their shardings differ.
  void cut_ties_alike() {
    std::unordered_map<TensorId, size_t> where;
    for (size_t i = 0; i < item_.tensors.size(); ++i) where[item_.tensors[i]] = i;
    for (size_t i = 0; i < item_.tensors.size(); ++i)
      if (auto kept = where.find(want_.same_as(item_.tensors[i])); kept != where.end())
        item_.chunks[i] = item_.chunks[kept->second];
  }

  /// As it was cut before, where that divides it.
  void take_chunk(size_t i, const std::vector<int64_t>& write_shape) {
    auto shape = want_.spec(item_.tensors[i]).shape;
    if (write_shape.size() != shape.size()) return;
    uint64_t chunks = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (write_shape[d] < 1 || shape[d] % write_shape[d] != 0) return;
      chunks *= static_cast<uint64_t>(shape[d] / write_shape[d]);
    }
    constexpr uint64_t kMostChunks = 1 << 16;
    if (chunks >= 1 && chunks <= kMostChunks) item_.chunks[i] = write_shape;
  }

  void make_tree(std::vector<std::string>& warnings) {
    bool nested = true;
    auto paths = orbax_paths_of_names(item_.names, nested);
    if (!nested)
      warnings.push_back("a name is the beginning of another: the tree is one dict of whole names, not nested by '.'");
    for (auto& path : paths) item_.tree.leaves.push_back({std::move(path), "np.ndarray"});
  }

  const Catalog& want_;
  OrbaxItem item_;
  const Json& kept_;
  const bool zarr3_;
  std::unordered_map<std::string, size_t> by_name_;
};

/// Items that the names of all tensors begin with; empty when they do not.
std::map<std::string, OrbaxItem> split_by_item(const Catalog& want, const Json& items) {
  std::map<std::string, OrbaxItem> out;
  if (!items.is_object() || items.size() < 2) return out;
  for (const auto& [name, kept] : items.items()) out[name].name = name;
  for (TensorId id = 0; id < want.size(); ++id) {
    auto name = want.spec(id).name;
    auto item = out.find(std::string(name.substr(0, name.find('/'))));
    if (item == out.end() || item->first.size() == name.size()) return {};
    item->second.tensors.push_back(id);
    item->second.names.emplace_back(name.substr(item->first.size() + 1));
  }
  return out;
}

/// What would have been right; "" when it is.
std::string_view read_compression(const std::string& value, bool& zstd, std::optional<int>& level) {
  zstd = value != "none";
  if (value == "none" || value == "zstd") return "";
  if (!value.starts_with("zstd:")) return "compression=none, zstd or zstd:LEVEL";
  const char* end_of_text = value.data() + value.size();
  auto [end, problem] = std::from_chars(value.data() + 5, end_of_text, level.emplace());
  bool right = problem == std::errc() && end == end_of_text && *level >= -131072 && *level <= 22;
  return right ? "" : "compression=zstd:1";
}

/// A directory's name, and not one that means something else beside an item or in its place.
bool is_item_name(std::string_view name) {
  bool control = std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; });
  bool taken = is_orbax_file(name) || name == kOcdbtManifest || name == "d" || name.starts_with(kOrbaxProcess) ||
               name.starts_with("array_metadatas") || name.find(kOrbaxTemporary) != name.npos;
  return name.empty() || (name.find('/') == name.npos && is_safe_relative_path(name) && !control && !taken);
}

/// What only a later option may decide.
struct Given {
  std::optional<int> level;
  std::optional<bool> zarr3;
};

/// Takes one option; what would have been right, "" when it is.
std::string_view read_setting(const std::string& key, const std::string& value, OrbaxSettings& out, Given& given) {
  if (key == "compression") return read_compression(value, out.zstd, given.level);
  if (key == "zarr") {
    given.zarr3 = value == "3";
    return value == "2" || value == "3" ? "" : "zarr=2 or 3";
  }
  if (key == "api") {
    out.version1 = value == "v1";
    return value == "v0" || value == "v1" ? "" : "api=v0 or v1";
  }
  if (key == "item") {
    out.item = value;
    return is_item_name(value) ? "" : "item=NAME, a plain name that Orbax has no use for";
  }
  if (key == "tree") out.tree = value;
  return key == "tree" ? "" : "compression, zarr, api, item or tree";
}

}  // namespace

Result<OrbaxSettings> OrbaxSettings::parse(const std::vector<std::pair<std::string, std::string>>& options) {
  OrbaxSettings out;
  Given given;
  for (const auto& [key, value] : options)
    if (auto expected = read_setting(key, value, out, given); !expected.empty())
      return fail(Code::kInvalidArgument, "format orbax has no such option")
          .with_found(fmt::format("{}={}", key, value))
          .with_expected(std::string(expected));
  // As each API writes by itself.
  out.zarr3 = given.zarr3.value_or(out.version1);
  if (out.version1 && out.item.empty()) out.item = "state";
  out.level = given.level.value_or(out.zarr3 ? 3 : 1);
  return out;
}

Result<std::vector<OrbaxItem>> plan_orbax_items(const Catalog& want, const OrbaxSettings& settings,
                                                const WriteOptions& options, std::vector<std::string>& warnings) {
  Json kept = Json::object();
  const Value* value = want.value(kOrbaxValue);
  if (!settings.tree.empty()) {
    auto tree = parse_json(settings.tree);
    if (!tree.ok()) return fail(Code::kInvalidArgument, "the option 'tree' is no JSON").with_found(settings.tree);
    if (!tree->is_object())
      return fail(Code::kInvalidArgument, "the option 'tree' is no JSON object").with_found(settings.tree);
    kept = std::move(*tree);
  } else if (value != nullptr) {
    SHARDWRIGHT_ASSIGN(kept, parse_json(value->data));
  }
  const Json& items = json_member(kept, "items");
  auto parts =
      settings.item.empty() || settings.version1 ? split_by_item(want, items) : std::map<std::string, OrbaxItem>();
  if (parts.empty()) {
    OrbaxItem& whole = parts[settings.item];
    whole.name = settings.item;
    for (TensorId id = 0; id < want.size(); ++id) {
      whole.tensors.push_back(id);
      whole.names.emplace_back(want.spec(id).name);
    }
  }
  std::vector<OrbaxItem> out;
  for (auto& [name, item] : parts) {
    const Json& of_item = parts.size() > 1 ? json_member(items, name) : json_member(items, "");
    item.directory = name.empty() ? "" : name + "/";
    const Json& handler = json_member(of_item, "handler");
    item.handler = settings.version1 ? kVersion1Handler : kStandardHandler;
    if (handler.is_string() && !settings.version1 && parts.size() > 1) item.handler = handler.get<std::string>();
    if (item.tensors.empty() && !json_member(of_item, "leaves").is_array()) continue;
    SHARDWRIGHT_ASSIGN(auto made, ItemMaker(want, std::move(item), of_item, settings.zarr3).make(options, warnings));
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace shardwright
