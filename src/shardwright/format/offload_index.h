/// The index of a folder that accelerate offloads tensors to (`index.json`) as text: read and written without any I/O.
///
/// {name: {"dtype": NumPy's name, "shape": [...]}, ...}: the values are the file `name.dat` beside it; or
/// {name: {"safetensors_file": path, "weight_name": name there, "dtype": type that readers cast to}, ...}: they are a tensor of that file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

inline constexpr std::string_view kOffloadIndex = "index.json", kOffloadEnding = ".dat";
/// An index of half a million tensors.
inline constexpr uint64_t kMaxOffloadIndex = 64 * MiB;

struct OffloadEntry {
  std::string name;
  std::optional<DType> dtype{};    ///< always there for a file of its own
  std::vector<int64_t> shape{};    ///< of a file of its own
  std::string safetensors_file{};  ///< as given, unchecked; "": a file of its own
  std::string weight_name{};       ///< there

  bool own_file() const { return safetensors_file.empty(); }
  /// "name.dat", unchecked.
  std::string file() const { return name + std::string(kOffloadEnding); }
};

/// In order. What is wrong with one entry goes to `report`: an error it returns ends the parse, ok skips the entry. Unknown members are ignored.
/// Errors: kCorrupt (no JSON object of objects, a name twice, no dtype or shape, negative or fractional extents), kUnsupported (dtype).
/// Memory about 10 x text; callers cap the text.
Result<std::vector<OffloadEntry>> parse_offload_index(std::string_view text,
                                                      const std::function<Status(Error)>& report);

/// Whether a text begins as such an index does: an object whose first member is an object with "dtype", "shape" or "safetensors_file".
bool looks_like_offload_index(std::string_view first_bytes);

/// Byte for byte as accelerate does (Python's json.dump with indent 2) for files of their own.
class OffloadIndexWriter {
 public:
  void add(std::string_view name, DType dtype, std::span<const int64_t> shape);
  Bytes finish();

 private:
  std::string out_ = "{";
};

}  // namespace shardwright
