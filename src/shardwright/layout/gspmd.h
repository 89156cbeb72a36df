/// XLA's sharding strings, as HloSharding prints and parses them.
#pragma once

#include <string>
#include <string_view>

#include "shardwright/layout/tensor_layout.h"

namespace shardwright {

/// "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", in XLA's canonical form. Numbers are positions of the mesh: its devices belong beside the text.
/// REQUIRES: check_layout(mesh, layout), layout.dims.size() <= rank.
std::string gspmd_text(const DeviceMesh& mesh, const TensorLayout& layout, size_t rank);

/// The layout over `mesh` that gives every position the same tile. Read are {replicated}, iota and listed devices, last_tile_dim_replicate,
/// last_tile_dims={replicated}, and {maximal device=0} on a mesh of one. Axes of size 1 are left out of the layout.
/// Errors: kInvalidArgument for other text, a tile count that is not the mesh's size, and tiles that no axes of this mesh make;
/// kUnsupported for manual, unknown and tuple shardings. Memory O(mesh).
Result<TensorLayout> parse_gspmd(std::string_view text, const DeviceMesh& mesh);

}  // namespace shardwright
