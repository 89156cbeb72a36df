/// HDF5 types and ours, matched by properties (size, sign, order, mantissa), never by identity with the host's own types.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardwright/format/hdf5_handle.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

class Hdf5Input;

/// What a dataset's type means. kOpaque: raw bytes whose dataset attribute `dtype` must say what they are. kNotNumbers: strings, references
/// and the like, no tensors. kNoDtype: numbers that no dtype of ours can hold.
struct Hdf5TypeInfo {
  enum Class : uint8_t { kTensor, kOpaque, kNotNumbers, kNoDtype };
  Class kind = kNoDtype;
  DType dtype = DType::kU8;  ///< kTensor
  bool big_endian = false;   ///< kTensor
  size_t bytes = 0;          ///< of one stored element
  std::string text;          ///< for people: "128-bit float", "string"
};
Hdf5TypeInfo classify_hdf5_type(hid_t type);

/// dtype named by a `dtype` attribute, as NumPy, ml_dtypes or safetensors spell it.
std::optional<DType> dtype_from_attribute(std::string_view text);

/// Stored type of a dtype as h5py and Keras write it. HDF5 has no name for some: opaque of the block's size, with attributes.
struct Hdf5StoredType {
  Hdf5Type type;
  bool named = false;   ///< attribute `dtype` (NumPy's name) needed
  bool shaped = false;  ///< several elements share bytes: dataset is one-dimensional bytes, attribute `shape` needed
};
Hdf5StoredType hdf5_type_of(DType dtype);

/// Scalar string attribute, fixed or variable length. nullopt: no such attribute, or not a scalar string.
/// Errors: kCorrupt (library), kResourceExhausted (longer than 64 KiB, which HDF5's headers cannot hold either).
Result<std::optional<std::string>> read_string_attribute(const Hdf5Input& input, hid_t object, const char* name);
/// One-dimensional (or empty) attribute of integers. nullopt as above, or more than 255 of them.
Result<std::optional<std::vector<int64_t>>> read_integers_attribute(hid_t object, const char* name);
/// Attribute `shardwright_name`: the tensor's true name where a path cannot be it. Text, or bytes where there is a NUL. nullopt: none.
Result<std::optional<std::string>> read_name_attribute(const Hdf5Input& input, hid_t object);
Status write_name_attribute(hid_t object, const std::string& name);
/// Variable-length UTF-8 scalar, as h5py makes it of a str.
Status write_string_attribute(hid_t object, const char* name, const std::string& text);
Status write_integers_attribute(hid_t object, const char* name, const std::vector<int64_t>& values);

}  // namespace shardwright
