/// One device's part of a checkpoint, as a checkpoint of its own.
#pragma once

#include <string>
#include <vector>

#include "shardwright/engine/jobs.h"
#include "shardwright/engine/select.h"

namespace shardwright {

/// The same catalogue with tensor i as its box boxes[i]: local shapes, and pieces cut to them. An encoded piece that the box cuts keeps its
/// whole chunk, which then reaches beyond the tensor. Tied names stay tied where their boxes are equal; else each has its own bytes.
/// REQUIRES: boxes[i] lies within tensor i. Errors: kUnsupported for packed types that are cut elsewhere than between whole runs of blocks,
/// and for tensors that calls make.
Result<Catalog> cut_catalog(const Catalog& from, std::span<const Box> boxes);

inline constexpr std::string_view kPartKey = "shardwright.part";
/// Makes `from` and `selected` what the device holds: boxes by the names of selected.want. Its metadata gets kPartKey: a JSON text
/// {axis_names, shape, rank, tensors: {name: {shape, start}}}, shapes those of the whole tensors.
/// Errors: kInvalidArgument for a position that the mesh does not have, a source that is a part itself, and the first tensor that cannot be
/// laid out (how many more is said); kUnsupported for a text longer than readers take as metadata, and as cut_catalog() has it.
/// Returns warnings: rules that name no tensor, large tensors without a rule.
Result<std::vector<std::string>> take_part(const DevicePart& part, Catalog& from, Selected& selected);

}  // namespace shardwright
