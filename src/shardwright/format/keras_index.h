/// X.weights.json: which shard files hold the variables of a layer. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// Neither read nor written when larger: room for half a million layers. Parsing takes ten times as much.
inline constexpr uint64_t kMaxKerasIndexBytes = 64 * MiB;

struct KerasIndex {
  struct Entry {
    std::string group;            ///< as in the file, without the first slash: "layers/dense/vars"
    std::vector<uint32_t> files;  ///< in `files`, in the index's order
    bool list = true;             ///< Keras writes a plain string for a group of one variable
  };
  std::vector<std::string> files;  ///< in order of first appearance
  std::vector<Entry> entries;
  std::optional<double> total_size;  ///< bytes, as Keras counts them; nullopt when absent or no number
  std::string metadata;              ///< JSON object of what else "metadata" holds; "" when nothing
};

/// Fills in the entries as Keras does while it saves: one call per variable, in order.
class KerasIndexBuilder {
 public:
  void add(std::string_view group, uint32_t file);
  KerasIndex index;  ///< files, total_size and metadata are the caller's to set

 private:
  std::unordered_map<std::string, size_t> entries_;
};

/// Errors: kCorrupt with offset or key: no JSON, no "weight_map", values that are neither string nor list of strings, file names with a
/// path in them or that leave the directory, groups named twice.
Result<KerasIndex> parse_keras_index(std::string_view text);

/// The file's text, as Python's json.dumps(indent=4) writes it.
std::string format_keras_index(const KerasIndex& index);

/// repr() of a Python float that is not negative: "2056.0", "0.125", "1e+16".
std::string python_float(double value);

}  // namespace shardwright
