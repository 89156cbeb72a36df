#include "shardwright/layout/orbax_sharding.h"

#include <fmt/format.h>

#include <map>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/layout/partition_spec.h"

namespace shardwright {
namespace {

Error bad(std::string message) { return fail(Code::kCorrupt, std::move(message)); }

/// Nested lists of the mesh's shape, each leaf written by `leaf(position)`.
template <class Leaf>
void write_nested(std::string& out, std::span<const int64_t> shape, int64_t& position, const Leaf& leaf) {
  if (shape.empty()) {
    leaf(out, position++);
    return;
  }
  out += '[';
  for (int64_t i = 0; i < shape[0]; ++i) {
    if (i > 0) out += ", ";
    write_nested(out, shape.subspan(1), position, leaf);
  }
  out += ']';
}

/// Leaves of nested lists that have exactly the mesh's shape.
Status read_ids(const Json& node, std::span<const int64_t> shape, std::vector<std::string>& names) {
  if (shape.empty()) {
    auto id = node.is_object() ? node.find("id") : node.end();
    if (!node.is_object() || id == node.end() || !id->is_number_unsigned())
      return bad("a device of the mesh has no id");
    names.push_back(std::to_string(id->get<uint64_t>()));
    return {};
  }
  if (!node.is_array() || node.size() != static_cast<size_t>(shape[0]))
    return bad("device_mesh does not have the mesh's shape");
  for (const Json& child : node) SHARDWRIGHT_TRY(read_ids(child, shape.subspan(1), names));
  return {};
}

Result<std::vector<std::string>> read_devices(const Json& entry, std::span<const int64_t> shape) {
  std::vector<std::string> names;
  auto devices = entry.find("device_mesh");
  if (devices == entry.end() || devices->is_null()) return names;
  if (!devices->is_object() || !devices->contains("mesh")) return bad("device_mesh has no mesh");
  SHARDWRIGHT_TRY(read_ids((*devices)["mesh"], shape, names));
  return names;
}

Result<DeviceMesh> read_mesh(const Json& entry) {
  auto shape = entry.find("shape"), axis_names = entry.find("axis_names");
  if (shape == entry.end() || axis_names == entry.end() || !shape->is_array() || !axis_names->is_array())
    return bad("a NamedSharding needs shape and axis_names");
  std::vector<int64_t> sizes;
  std::vector<std::string> names;
  int64_t room = DeviceMesh::kMaxDevices;
  for (const Json& size : *shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() < 1 || size.get<uint64_t>() > static_cast<uint64_t>(room))
      return bad("the mesh has an impossible shape").with_found(shape->dump().substr(0, 200));
    sizes.push_back(size.get<int64_t>());
    room /= sizes.back();
  }
  for (const Json& name : *axis_names) {
    if (!name.is_string()) return bad("an axis name is no string");
    names.push_back(name.get<std::string>());
  }
  SHARDWRIGHT_ASSIGN(auto devices, read_devices(entry, sizes));
  return DeviceMesh::create(std::move(sizes), std::move(names), std::move(devices));
}

Result<OrbaxSharding> read_entry(std::string name, const Json& entry) {
  auto type = entry.is_object() ? entry.find("sharding_type") : entry.end();
  if (!entry.is_object() || type == entry.end() || !type->is_string()) return bad("a sharding has no sharding_type");
  OrbaxSharding out;
  out.name = std::move(name);
  if (*type == "SingleDeviceSharding") {
    auto device = entry.find("device_str");
    if (device == entry.end() || !device->is_string()) return bad("a SingleDeviceSharding has no device_str");
    out.device = device->get<std::string>();
    return out;
  }
  if (*type != "NamedSharding")
    return fail(Code::kUnsupported, "shardings of this type are not read")
        .with_found(json_quote(type->get<std::string>().substr(0, 100)));
  SHARDWRIGHT_ASSIGN(out.mesh, read_mesh(entry));
  auto spec = entry.find("partition_spec");
  if (spec == entry.end()) return bad("a NamedSharding has no partition_spec");
  SHARDWRIGHT_ASSIGN(out.layout, parse_partition_spec(*spec));
  SHARDWRIGHT_TRY(check_layout(*out.mesh, out.layout));
  return out;
}

}  // namespace

Result<std::string> orbax_sharding_text(const OrbaxSharding& sharding) {
  if (!sharding.mesh)
    return fmt::format(R"({{"sharding_type": "SingleDeviceSharding", "device_str": {}}})", json_quote(sharding.device));
  const DeviceMesh& mesh = *sharding.mesh;
  auto ids = mesh.device_ids();
  if (!ids)
    return fail(Code::kUnsupported, "Orbax knows devices by their ids, and a name has none at its end")
        .with_found("'" + mesh.devices()[0] + "', ...");
  auto quoted = [](std::span<const std::string> names) {
    std::string out;
    for (const auto& name : names) out += (out.empty() ? "" : ", ") + json_quote(name);
    return "[" + out + "]";
  };
  std::string types, spec, devices;
  for (size_t i = 0; i < mesh.rank(); ++i) types += fmt::format(R"({}"AxisType.Auto")", i == 0 ? "" : ", ");
  for (const auto& axes : sharding.layout.dims) {
    spec += spec.empty() ? "" : ", ";
    spec += axes.empty() ? "null" : axes.size() == 1 ? json_quote(axes[0]) : quoted(axes);
  }
  int64_t position = 0;
  write_nested(devices, mesh.shape(), position,
               [&](std::string& out, int64_t at) { out += fmt::format(R"({{"id": {}}})", (*ids)[at]); });
  return fmt::format(
      R"({{"sharding_type": "NamedSharding", "shape": [{}], "axis_names": {}, "axis_types": [{}], "partition_spec": [{}], "device_mesh": {{"mesh": {}}}}})",
      fmt::join(mesh.shape(), ", "), quoted(mesh.axis_names()), types, spec, devices);
}

Result<OrbaxSharding> parse_orbax_sharding(std::string name, std::string_view text) {
  SHARDWRIGHT_ASSIGN(Json entry, parse_json(text));
  auto read = read_entry(name, entry);
  if (read.ok()) return read;
  if (read.error().code == Code::kInvalidArgument) read.error().code = Code::kCorrupt;
  return std::move(read.error()).at_tensor(std::move(name));
}

Result<std::string> orbax_shardings_text(std::span<const OrbaxSharding> shardings) {
  std::map<std::string, std::string> entries;
  for (const auto& sharding : shardings) {
    SHARDWRIGHT_ASSIGN(auto text, orbax_sharding_text(sharding));
    entries[base64url(sharding.name)] = std::move(text);
  }
  std::string out = "{";
  for (const auto& [key, text] : entries)
    out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", json_quote(key), json_quote(text));
  return out + "}";
}

Result<std::vector<OrbaxSharding>> parse_orbax_shardings(std::string_view text) {
  SHARDWRIGHT_ASSIGN(Json file, parse_json(text));
  if (!file.is_object()) return bad("a _sharding file is no JSON object");
  std::vector<OrbaxSharding> out;
  for (const auto& [key, value] : file.items()) {
    auto name = from_base64url(key);
    if (!name) return bad("a key is no base64 of a name").with_found(json_quote(key.substr(0, 200)));
    if (!value.is_string()) return bad("an entry is no string").at_tensor(*name);
    SHARDWRIGHT_ASSIGN(auto sharding,
                       parse_orbax_sharding(std::move(*name), value.template get_ref<const std::string&>()));
    out.push_back(std::move(sharding));
  }
  return out;
}

}  // namespace shardwright
