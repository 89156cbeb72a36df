/// A layout as a picture.
#pragma once

#include <string>

#include "shardwright/layout/layout_report.h"

namespace shardwright::cli {

/// An SVG of the mesh, the blocks of one tensor in the colours of the devices that hold them, and the bytes of every device.
/// REQUIRES: the row of `tensor` in the report has a grid.
std::string layout_svg(const LayoutMap& map, std::span<const TensorToLay> tensors, const LayoutReport& report,
                       size_t tensor);

}  // namespace shardwright::cli
