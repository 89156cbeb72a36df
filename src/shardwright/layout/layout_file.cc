#include "shardwright/layout/layout_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/text.h"
#include "shardwright/layout/gspmd.h"
#include "shardwright/layout/partition_spec.h"
#include "shardwright/layout/shardy.h"
#include "shardwright/layout/torch_placements.h"

namespace shardwright {
namespace {

Error bad(std::string message, std::string expected) {
  return fail(Code::kInvalidArgument, std::move(message)).with_expected(std::move(expected));
}

Status check_keys(const Json& object, const std::string& what, const std::vector<std::string>& known) {
  if (!object.is_object()) return bad(what + " is no table", "keys and values");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    auto error = bad(what + " has an unknown key " + json_quote(key), fmt::format("{}", fmt::join(known, ", ")));
    auto near = nearest_names(key, known, 1);
    if (!near.empty()) error.hint = "did you mean '" + near[0] + "'?";
    return error;
  }
  return {};
}

Result<DeviceMesh> parse_mesh(const Json& mesh) {
  SHARDWRIGHT_TRY(check_keys(mesh, "the mesh", {"axis_names", "shape", "devices"}));
  std::vector<std::string> names, devices;
  std::vector<int64_t> shape;
  const Json none = Json::array();
  auto list = [&](const char* key) -> const Json& {
    auto at = mesh.find(key);
    return at == mesh.end() ? none : *at;
  };
  for (const char* key : {"axis_names", "shape", "devices"})
    if (!list(key).is_array()) return bad(std::string("'") + key + "' of the mesh is no list", "a list");
  for (const Json& name : list("axis_names")) {
    if (!name.is_string()) return bad("an axis name of the mesh is no string", R"(axis_names = ["data", "model"])");
    names.push_back(name.get<std::string>());
  }
  for (const Json& size : list("shape")) {
    bool fits = size.is_number_integer() && (!size.is_number_unsigned() || size.get<uint64_t>() <= INT64_MAX);
    if (!fits) return bad("a size of the mesh is no whole number", "shape = [2, 4]");
    shape.push_back(size.get<int64_t>());
  }
  for (const Json& device : list("devices")) {
    if (!device.is_string() && !device.is_number_unsigned())
      return bad("a device of the mesh is neither a name nor an id", R"(devices = ["cpu:0", "cpu:1"])");
    devices.push_back(device.is_string() ? device.get<std::string>() : std::to_string(device.get<uint64_t>()));
  }
  return DeviceMesh::create(std::move(shape), std::move(names), std::move(devices));
}

/// The number of the choice that a key names; 0 when it is missing.
Result<size_t> choice(const Json& file, const char* key, const std::vector<std::string>& choices) {
  auto at = file.find(key);
  if (at == file.end()) return size_t{0};
  for (size_t i = 0; i < choices.size(); ++i)
    if (*at == choices[i]) return i;
  return bad(std::string("'") + key + "' cannot be " + json_text(*at).substr(0, 100),
             fmt::format("\"{}\"", fmt::join(choices, "\" or \"")));
}

Result<TensorLayout> parse_rule(const Json& rule, const DeviceMesh& mesh) {
  if (!rule.is_string()) return parse_partition_spec(rule);
  const auto& text = rule.get_ref<const std::string&>();
  if (text.starts_with("#sdy.")) return parse_shardy(text, mesh);
  if (text.starts_with("{")) return parse_gspmd(text, mesh);
  if (text.starts_with("(") || text.starts_with("[")) return parse_placements(text, mesh);
  return bad("a rule is one entry per dimension, or the text of a sharding", R"(["data", ""])")
      .with_found("'" + text.substr(0, 200) + "'");
}

}  // namespace

Result<LayoutMap> parse_layout_file(const Json& file, std::optional<DeviceMesh> mesh) {
  SHARDWRIGHT_TRY(check_keys(file, "a layout file", {"mesh", "match", "uneven", "rules"}));
  auto own = file.find("mesh");
  if (!mesh && own == file.end())
    return fail(Code::kInvalidArgument, "there is no mesh")
        .with_hint("--mesh data=2,model=4, or 'mesh' in the layout file");
  if (!mesh) {
    SHARDWRIGHT_ASSIGN(mesh, parse_mesh(*own));
  }
  SHARDWRIGHT_ASSIGN(size_t match, choice(file, "match", {"search", "fullmatch", "exact"}));
  SHARDWRIGHT_ASSIGN(size_t uneven, choice(file, "uneven", {"refuse", "chunk"}));
  LayoutMap map(std::move(*mesh), static_cast<LayoutMap::Match>(match));
  auto rules = file.find("rules");
  if (rules == file.end()) return map;
  if (!rules->is_object()) return bad("'rules' is no table", R"(rules = {"attn.*kernel" = ["", "model"]})");
  for (const auto& [pattern, rule] : rules->items()) {
    auto layout = parse_rule(rule, map.mesh());
    if (!layout.ok()) return std::move(layout.error()).within("in the rule '" + pattern.substr(0, 200) + "'");
    layout->uneven = uneven == 0 ? Uneven::kRefuse : Uneven::kChunk;
    SHARDWRIGHT_TRY(map.set(pattern, std::move(*layout)));
  }
  return map;
}

}  // namespace shardwright
