/// The header of a safetensors file as text: read and written without any I/O.
///
/// A file is N (8 bytes, little-endian), N bytes of JSON, then the data buffer. The JSON is one object: tensor name ->
/// {"dtype", "shape", "data_offsets": [begin, end)}, offsets relative to byte 8 + N; and optionally "__metadata__", string -> string.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

/// Readers refuse a longer header, so no writer may make one.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

/// Which types safetensors has: all but those that came after its own.
inline bool safetensors_has(DType dtype) { return dtype <= DType::kU64; }

/// One tensor of a header; lives as long as the callback that gets it.
struct SafetensorsEntry {
  std::string_view name;
  DType dtype;
  std::span<const int64_t> shape;
  uint64_t begin, end;  ///< in the data buffer
};

/// A parsed header; refers to the text it came from, which must outlive it. 32 bytes per tensor beside the text.
class SafetensorsHeader {
 public:
  /// Takes the N bytes after the length. Grammar and types only: sizes and offsets are looked at by visit(). The plain form that writers
  /// produce is scanned at memory speed; all else (escapes, unknown fields, errors) goes through a full JSON parser, with the same verdict.
  /// Beyond what safetensors refuses, a name given twice inside `__metadata__` or a tensor's info is refused too.
  /// Errors: kCorrupt, with the tensor and the offset in the file; kUnsupported for metadata over kMaxMetadata.
  static Result<SafetensorsHeader> parse(std::string_view text);

  enum class Parser { kFast, kFull };
  /// parse() by one of its two parsers alone, for tests. The fast one fails on all that is not the plain form.
  static Result<SafetensorsHeader> parse_with(Parser parser, std::string_view text);

  size_t size() const { return entries_.size(); }
  uint64_t name_bytes() const { return name_bytes_; }
  bool has_metadata() const { return has_metadata_; }  ///< an empty object counts, null does not
  const std::vector<std::pair<std::string, std::string>>& metadata() const {
    return metadata_;
  }  ///< in the order of the text

  /// Calls `tensor` for each tensor in the order of its bytes, after checking that it fits: the buffer has no hole and no overlap, every size
  /// agrees with dtype and shape. What does not goes to `report`: an error it returns ends the visit, ok skips the tensor and goes on.
  /// Returns the length of the data buffer. Two tensors of one name are the caller's to find, except on the same bytes.
  using Report = std::function<Status(Error)>;
  using Visit = std::function<Status(const SafetensorsEntry&)>;
  Result<uint64_t> visit(const Visit& tensor, const Report& report) const;

  static constexpr uint64_t kMaxMetadata = 32 * MiB;

 private:
  friend class SafetensorsFullParser;
  struct Entry {
    uint64_t begin, end;
    uint32_t name, name_length;  ///< in text_, or in unescaped_
    uint32_t shape;              ///< in text_, after the bracket
    DType dtype;
  };
  bool scan(std::string_view* metadata);
  Status finish(std::string_view metadata);
  std::string_view name(const Entry& entry) const {
    return (full_ ? std::string_view(unescaped_) : text_).substr(entry.name, entry.name_length);
  }
  Status check(const Entry& entry, uint64_t start, const Entry* before, std::vector<int64_t>& shape) const;
  Status check_size(const Entry& entry, std::vector<int64_t>& shape) const;

  std::string_view text_;
  std::string unescaped_;  ///< names, when the full parser ran
  bool full_ = false;
  std::vector<Entry> entries_;  ///< by (begin, end), then as in the text
  std::vector<std::pair<std::string, std::string>> metadata_;
  uint64_t name_bytes_ = 0;
  bool has_metadata_ = false;
};

/// Writes a header exactly as safetensors 0.8 does: compact, `__metadata__` first, padded with spaces to a multiple of 8. Metadata keys are sorted
/// (safetensors' own order is random). REQUIRES: names are UTF-8, tensors come in the order of their bytes.
class SafetensorsHeaderWriter {
 public:
  /// No `__metadata__` when null.
  explicit SafetensorsHeaderWriter(const std::vector<std::pair<std::string, std::string>>* metadata);
  void add(std::string_view name, DType dtype, std::span<const int64_t> shape, uint64_t begin, uint64_t end);
  /// The length and the text: what a file begins with. The writer is empty afterwards.
  Bytes finish();

 private:
  Bytes out_;
  bool first_ = true;
};

/// At most this many bytes of a header are due to one tensor, wherever its data lies.
uint64_t safetensors_entry_bound(std::string_view name, std::span<const int64_t> shape);
/// True when `a` comes before `b` in files of safetensors' own writer: wide types first, then by name.
bool safetensors_before(DType a, std::string_view name_a, DType b, std::string_view name_b);

}  // namespace shardwright
