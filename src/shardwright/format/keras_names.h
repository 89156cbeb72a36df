/// Tensor names and dataset paths in Keras's HDF5 files. Pure. Paths have no first slash.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright {

/// "0", "12"; not "", "-1", "1a".
bool is_decimal(std::string_view text);
/// "vars", "layers/dense/vars": a group of variables of one layer.
bool is_vars_group(std::string_view path);
/// The group of variables that a dataset belongs to: up to the last "vars" above it; "" when there is none.
std::string_view vars_group_of(std::string_view path);
/// Everything before the last slash; "" when there is none.
std::string_view parent_path(std::string_view path);

/// `<path>/vars/<key>` as HDF5 keeps it: no empty component, no ".", no NUL, at most 200 components. Keras's own keys are decimals; layers
/// that save themselves may use others, with slashes in them too.
bool is_keras_path(std::string_view name);

/// `name` as a group path that HDF5 keeps: bytes it would alter become %XX, an empty component "%". Not to be decoded: the true name is
/// kept in an attribute.
std::string escape_for_hdf5(std::string_view name);

/// Dataset path of every tensor: Keras's names are their own path, any other name N is dataset 0 of group `N/vars`, escaped. Where two
/// would meet (the same path, or a dataset where another needs a group) the later one, Keras's names first, is written flat: slashes as
/// %2F, then numbered. Paths are distinct and none lies below another. O(total length). REQUIRES: distinct names.
std::vector<std::string> keras_paths(std::span<const std::string_view> names);

}  // namespace shardwright
