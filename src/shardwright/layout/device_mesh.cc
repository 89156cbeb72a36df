#include "shardwright/layout/device_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "shardwright/tensor/dtype.h"

namespace shardwright {
namespace {

/// Written into other people's texts without escapes.
bool is_plain(std::string_view name) {
  auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), plain);
}

Error bad(std::string message) { return fail(Code::kInvalidArgument, std::move(message)); }

Status check_names(std::string_view what, std::span<const std::string> names) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : names) {
    if (!is_plain(name))
      return bad(fmt::format("a mesh cannot have {} of this name", what))
          .with_found("'" + name + "'")
          .with_expected("printable ASCII without quotes and backslash");
    if (!seen.insert(name).second) return bad(fmt::format("the mesh has {} '{}' twice", what, name));
  }
  return {};
}

}  // namespace

Result<DeviceMesh> DeviceMesh::create(std::vector<int64_t> shape, std::vector<std::string> axis_names,
                                      std::vector<std::string> devices) {
  if (shape.empty()) return bad("a mesh needs at least one axis");
  if (shape.size() != axis_names.size())
    return bad("a mesh needs one name per axis")
        .with_found(fmt::format("{} sizes, {} names", shape.size(), axis_names.size()));
  SHARDWRIGHT_TRY(check_names("an axis", axis_names));
  int64_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1)
      return bad(fmt::format("axis '{}' of the mesh has size {}", axis_names[i], shape[i])).with_expected("1 or more");
    if (shape[i] > kMaxDevices / count)
      return bad("the mesh is too large")
          .with_found(shape_text(shape))
          .with_expected(fmt::format("at most {} devices", kMaxDevices));
    count *= shape[i];
  }
  if (devices.empty()) {
    for (int64_t i = 0; i < count; ++i) devices.push_back(std::to_string(i));
  }
  if (static_cast<int64_t>(devices.size()) != count)
    return bad("the devices do not fill the mesh")
        .with_found(fmt::format("{} devices", devices.size()))
        .with_expected(fmt::format("{} for shape {}", count, shape_text(shape)));
  SHARDWRIGHT_TRY(check_names("a device", devices));
  DeviceMesh mesh;
  mesh.shape_ = std::move(shape);
  mesh.axis_names_ = std::move(axis_names);
  mesh.devices_ = std::move(devices);
  return mesh;
}

Result<DeviceMesh> DeviceMesh::parse(std::string_view text) {
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  for (size_t at = 0; at <= text.size();) {
    std::string_view item = text.substr(at, text.find(',', at) - at);
    at += item.size() + 1;
    size_t equals = item.find('=');
    int64_t size = 0;
    std::string_view digits = equals == item.npos ? std::string_view{} : item.substr(equals + 1);
    auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size())
      return bad("cannot read the mesh").with_found("'" + std::string(text) + "'").with_expected("data=2,model=4");
    shape.push_back(size);
    names.emplace_back(item.substr(0, equals));
  }
  return create(std::move(shape), std::move(names));
}

std::optional<std::vector<int64_t>> DeviceMesh::device_ids() const {
  std::vector<int64_t> ids;
  ids.reserve(devices_.size());
  for (const std::string& name : devices_) {
    size_t digits = name.find_last_not_of("0123456789") + 1;
    int64_t id = 0;
    auto [end, problem] = std::from_chars(name.data() + digits, name.data() + name.size(), id);
    if (digits == name.size() || problem != std::errc()) return std::nullopt;
    ids.push_back(id);
  }
  return ids;
}

std::optional<size_t> DeviceMesh::axis(std::string_view name) const {
  auto at = std::find(axis_names_.begin(), axis_names_.end(), name);
  if (at == axis_names_.end()) return std::nullopt;
  return static_cast<size_t>(at - axis_names_.begin());
}

int64_t DeviceMesh::stride(size_t axis) const {
  int64_t stride = 1;
  for (size_t i = axis + 1; i < shape_.size(); ++i) stride *= shape_[i];
  return stride;
}

std::string DeviceMesh::text() const {
  std::string out;
  for (size_t i = 0; i < shape_.size(); ++i)
    out += fmt::format("{}{}={}", i == 0 ? "" : ",", axis_names_[i], shape_[i]);
  return out;
}

}  // namespace shardwright
