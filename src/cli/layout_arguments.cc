#include "cli/layout_arguments.h"

#include "cli/user_file.h"
#include "shardwright/layout/layout_file.h"

namespace shardwright::cli {

Result<LayoutMap> read_layout(const Arguments& arguments) {
  std::string mesh_text = arguments.text("mesh"), path = arguments.text("layout");
  std::optional<DeviceMesh> mesh;
  if (!mesh_text.empty()) {
    Result<DeviceMesh> parsed = DeviceMesh::parse(mesh_text);
    if (!parsed.ok()) return std::move(parsed.error()).within("in --mesh");
    mesh = std::move(*parsed);
  }
  Json file = Json::object();
  if (!path.empty()) {
    SHARDWRIGHT_ASSIGN(file, read_json_or_toml_file(path));
  }
  Result<LayoutMap> map = parse_layout_file(file, std::move(mesh));
  if (map.ok() || path.empty()) return map;
  return std::move(map.error()).at_path(path);
}

}  // namespace shardwright::cli
