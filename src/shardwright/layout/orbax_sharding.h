/// Orbax's `_sharding` file: where each array of a checkpoint was when it was saved.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/layout/tensor_layout.h"

namespace shardwright {

/// A NamedSharding (mesh set), or a SingleDeviceSharding (device set).
struct OrbaxSharding {
  std::string name;  ///< of the parameter
  std::optional<DeviceMesh> mesh;
  TensorLayout layout;
  std::string device;  ///< "cpu:0"
  bool operator==(const OrbaxSharding&) const = default;
};

/// The JSON text of one entry, as Python's json.dumps writes it; all axes are Auto, and how uneven dimensions are cut is not noted. Errors: kUnsupported when a device name of the mesh ends without an id.
Result<std::string> orbax_sharding_text(const OrbaxSharding& sharding);
/// Reads one entry; `name` is kept as it is. device_mesh may be missing: then devices are 0, 1, ... Types of axes are passed over.
/// Errors: kCorrupt for what is no sharding or whose mesh, axes and spec contradict each other; kUnsupported for PositionalSharding.
Result<OrbaxSharding> parse_orbax_sharding(std::string name, std::string_view text);

/// The whole file: a JSON object from base64url of the name to the text of its entry, sorted by key. Text is capped by the caller.
/// Errors: those of one entry, and kCorrupt for what is no such object.
Result<std::string> orbax_shardings_text(std::span<const OrbaxSharding> shardings);
Result<std::vector<OrbaxSharding>> parse_orbax_shardings(std::string_view text);

}  // namespace shardwright
