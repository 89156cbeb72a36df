/// Shardy's attributes, as MLIR prints and parses them.
#pragma once

#include <string>
#include <string_view>

#include "shardwright/layout/tensor_layout.h"

namespace shardwright {

/// `#sdy.mesh<["a"=2, "b"=4]>`, with device_ids when the ids of the devices are not 0, 1, ... in order. Devices without ids count as in order.
std::string shardy_mesh_text(const DeviceMesh& mesh);
/// Reads that. Errors: kInvalidArgument for other text, the empty mesh and meshes of maximal shardings, and what DeviceMesh::create refuses.
Result<DeviceMesh> parse_shardy_mesh(std::string_view text);

/// `#sdy.sharding<@mesh, [{"a", "b"}, {}]>`: `rank` dimensions. REQUIRES: layout.dims.size() <= rank; mesh_name is an MLIR name.
std::string shardy_text(const TensorLayout& layout, size_t rank, std::string_view mesh_name = "mesh");
/// Reads that over `mesh`, under any mesh name, and inlined meshes of the same axes. Open dimensions ({"a", ?}) are read as they stand, and
/// replicated={...} is checked. Errors: kInvalidArgument for other text, and axes that are not the mesh's or are used twice;
/// kUnsupported for sub-axes, priorities, unreduced and manual axes.
Result<TensorLayout> parse_shardy(std::string_view text, const DeviceMesh& mesh);

}  // namespace shardwright
