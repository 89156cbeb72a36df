/// Devices in a grid with named axes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/result.h"

namespace shardwright {

/// Position p of the mesh is at row-major coordinates of its shape, the last axis fastest, and belongs to devices()[p]. Everything that
/// speaks of a device by number means its position. Immutable.
class DeviceMesh {
 public:
  static constexpr int64_t kMaxDevices = int64_t{1} << 20;

  /// devices: one name per position, "cpu:0" or a bare id; none given: "0", "1", ...
  /// Errors: kInvalidArgument for no axes, sizes below 1, more than kMaxDevices, names that are empty, twice or not plain (printable ASCII
  /// without quotes and backslash), and a number of devices that is not the product of the shape.
  static Result<DeviceMesh> create(std::vector<int64_t> shape, std::vector<std::string> axis_names,
                                   std::vector<std::string> devices = {});
  /// "data=2,model=4", over devices "0", "1", ... Errors: kInvalidArgument for other text, and those of create().
  static Result<DeviceMesh> parse(std::string_view text);

  std::span<const int64_t> shape() const { return shape_; }
  std::span<const std::string> axis_names() const { return axis_names_; }
  std::span<const std::string> devices() const { return devices_; }
  /// The number at the end of each device's name ("cpu:3" is 3), by position. nullopt when a name ends without one that fits 63 bits.
  std::optional<std::vector<int64_t>> device_ids() const;
  int64_t size() const { return static_cast<int64_t>(devices_.size()); }
  size_t rank() const { return shape_.size(); }
  std::optional<size_t> axis(std::string_view name) const;
  /// Positions between neighbours along an axis, and the place of a position on it, from 0. REQUIRES: axis < rank(), 0 <= position < size().
  int64_t stride(size_t axis) const;
  int64_t coordinate(int64_t position, size_t axis) const { return position / stride(axis) % shape_[axis]; }
  std::string text() const;  ///< "data=2,model=4"
  bool operator==(const DeviceMesh&) const = default;

 private:
  DeviceMesh() = default;
  std::vector<int64_t> shape_;
  std::vector<std::string> axis_names_, devices_;
};

}  // namespace shardwright
