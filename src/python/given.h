/// Tensors as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "shardwright/format/catalog.h"

namespace shardwright::python {

/// The caller's memory, files and producers as a source. given: (name, dtype, shape, where); where: the address of all of it, in C order; or
/// its pieces; a FilePiece; None: a producer makes it. side_files: (name, absolute path). values: JSON texts by key.
/// REQUIRES: the GIL. Throws for what is of another shape.
Result<Catalog> source_of(const nanobind::list& given, const std::vector<std::pair<size_t, size_t>>& ties,
                          const std::vector<std::pair<std::string, std::string>>& values,
                          const std::vector<std::pair<std::string, std::string>>& side_files, bool partial);

}  // namespace shardwright::python
