#include "shardwright/format/hdf5_types.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "shardwright/format/hdf5_global_heap.h"
#include "shardwright/format/hdf5_reading_driver.h"

namespace shardwright {
namespace {

struct FloatRow {
  DType dtype;
  size_t bytes, exponent_bits, mantissa_bits, bias;
};
// IEEE, and the types that HDF5 2 spells as floats where Keras and we use opaque.
constexpr std::array<FloatRow, 6> kFloats = {{
    {DType::kF64, 8, 11, 52, 1023},
    {DType::kF32, 4, 8, 23, 127},
    {DType::kF16, 2, 5, 10, 15},
    {DType::kBF16, 2, 8, 7, 127},
    {DType::kF8E4M3, 1, 4, 3, 7},
    {DType::kF8E5M2, 1, 5, 2, 15},
}};

std::optional<DType> float_dtype(hid_t type) {
  size_t sign = 0, exponent_at = 0, exponent_bits = 0, mantissa_at = 0, mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent_at, &exponent_bits, &mantissa_at, &mantissa_bits) < 0) return std::nullopt;
  size_t bytes = H5Tget_size(type);
  if (H5Tget_precision(type) != 8 * bytes || H5Tget_offset(type) != 0 || H5Tget_norm(type) != H5T_NORM_IMPLIED)
    return std::nullopt;
  if (mantissa_at != 0 || exponent_at != mantissa_bits || sign != exponent_at + exponent_bits) return std::nullopt;
  for (const auto& row : kFloats)
    if (row.bytes == bytes && row.exponent_bits == exponent_bits && row.mantissa_bits == mantissa_bits &&
        row.bias == H5Tget_ebias(type))
      return row.dtype;
  return std::nullopt;
}

std::optional<DType> integer_dtype(hid_t type, bool has_sign) {
  size_t bytes = H5Tget_size(type);
  if (H5Tget_precision(type) != 8 * bytes || H5Tget_offset(type) != 0) return std::nullopt;
  bool negative = has_sign && H5Tget_sign(type) == H5T_SGN_2;
  switch (bytes) {
    case 1: return negative ? DType::kI8 : DType::kU8;
    case 2: return negative ? DType::kI16 : DType::kU16;
    case 4: return negative ? DType::kI32 : DType::kU32;
    case 8: return negative ? DType::kI64 : DType::kU64;
    default: return std::nullopt;
  }
}

std::string take_string(char* text) {
  std::string out = text == nullptr ? "" : text;
  H5free_memory(text);
  return out;
}

/// h5py's bool: an enumeration {FALSE = 0, TRUE = 1} over one byte.
bool is_boolean(hid_t type) {
  if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  int seen = 0;
  for (unsigned i = 0; i < 2; ++i) {
    int8_t value = -1;
    auto name = take_string(H5Tget_member_name(type, i));
    if (H5Tget_member_value(type, i, &value) < 0) return false;
    if (name == "FALSE" && value == 0) seen |= 1;
    if (name == "TRUE" && value == 1) seen |= 2;
  }
  return seen == 3;
}

/// h5py's complex: a compound {r, i} of floats side by side.
std::optional<DType> complex_part(hid_t type) {
  if (H5Tget_nmembers(type) != 2) return std::nullopt;
  if (take_string(H5Tget_member_name(type, 0)) != "r" || take_string(H5Tget_member_name(type, 1)) != "i")
    return std::nullopt;
  Hdf5Type real(H5Tget_member_type(type, 0)), imaginary(H5Tget_member_type(type, 1));
  if (!real.ok() || H5Tget_class(real.get()) != H5T_FLOAT || H5Tequal(real.get(), imaginary.get()) <= 0)
    return std::nullopt;
  size_t bytes = H5Tget_size(real.get());
  if (H5Tget_member_offset(type, 0) != 0 || H5Tget_member_offset(type, 1) != bytes || H5Tget_size(type) != 2 * bytes)
    return std::nullopt;
  return float_dtype(real.get());
}

bool is_big_endian(hid_t type) { return H5Tget_order(type) == H5T_ORDER_BE; }
bool has_plain_order(hid_t type) {
  auto order = H5Tget_order(type);
  return order == H5T_ORDER_LE || order == H5T_ORDER_BE || order == H5T_ORDER_NONE;
}

Hdf5TypeInfo tensor_or_unknown(hid_t type, std::optional<DType> dtype, std::string text) {
  Hdf5TypeInfo out;
  out.bytes = H5Tget_size(type);
  out.text = std::move(text);
  if (!dtype || !has_plain_order(type)) return out;
  out.kind = Hdf5TypeInfo::kTensor;
  out.dtype = *dtype;
  out.big_endian = out.bytes > 1 && is_big_endian(type);
  return out;
}

Hdf5TypeInfo classify_enumeration(hid_t type) {
  if (is_boolean(type)) return tensor_or_unknown(type, DType::kBool, "bool");
  Hdf5Type base(H5Tget_super(type));
  auto dtype = H5Tget_class(base.get()) == H5T_INTEGER ? integer_dtype(base.get(), true) : std::nullopt;
  return tensor_or_unknown(base.get(), dtype, "enumeration");
}

Hdf5TypeInfo classify_compound(hid_t type) {
  auto part = complex_part(type);
  if (!part) return {Hdf5TypeInfo::kNotNumbers, DType::kU8, false, H5Tget_size(type), "compound"};
  Hdf5Type real(H5Tget_member_type(type, 0));
  std::optional<DType> whole;
  if (*part == DType::kF32) whole = DType::kC64;
  if (*part == DType::kF64) whole = DType::kC128;
  auto out = tensor_or_unknown(type, whole, fmt::format("complex of {}-bit floats", 4 * H5Tget_size(type)));
  out.big_endian = out.kind == Hdf5TypeInfo::kTensor && is_big_endian(real.get());
  return out;
}

}  // namespace

Hdf5TypeInfo classify_hdf5_type(hid_t type) {
  size_t bytes = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      return tensor_or_unknown(type, float_dtype(type), fmt::format("{}-bit float", H5Tget_precision(type)));
    case H5T_INTEGER:
      return tensor_or_unknown(type, integer_dtype(type, true), fmt::format("{}-bit integer", H5Tget_precision(type)));
    case H5T_BITFIELD:
      return tensor_or_unknown(type, integer_dtype(type, false),
                               fmt::format("{}-bit bit field", H5Tget_precision(type)));
    case H5T_ENUM: return classify_enumeration(type);
    case H5T_COMPOUND: return classify_compound(type);
    case H5T_OPAQUE:
      return {Hdf5TypeInfo::kOpaque, DType::kU8, false, bytes, fmt::format("opaque, {} bytes an element", bytes)};
    case H5T_ARRAY: return {Hdf5TypeInfo::kNoDtype, DType::kU8, false, bytes, "array-valued elements"};
    case H5T_STRING: return {Hdf5TypeInfo::kNotNumbers, DType::kU8, false, bytes, "string"};
    case H5T_REFERENCE: return {Hdf5TypeInfo::kNotNumbers, DType::kU8, false, bytes, "reference"};
    case H5T_VLEN: return {Hdf5TypeInfo::kNotNumbers, DType::kU8, false, bytes, "variable-length sequence"};
    case H5T_TIME: return {Hdf5TypeInfo::kNotNumbers, DType::kU8, false, bytes, "time"};
    default: return {Hdf5TypeInfo::kNoDtype, DType::kU8, false, bytes, "unknown type class"};
  }
}

std::optional<DType> dtype_from_attribute(std::string_view text) {
  for (const auto& row : dtype_table())
    if (row.numpy_name == text || row.name == text) return row.dtype;
  return std::nullopt;
}

namespace {

Hdf5Type copy_of(hid_t type) { return Hdf5Type(H5Tcopy(type)); }

Hdf5Type half_type() {
  auto type = copy_of(H5T_IEEE_F32LE);
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

Hdf5Type boolean_type() {
  Hdf5Type type(H5Tenum_create(H5T_STD_I8LE));
  int8_t no = 0, yes = 1;
  H5Tenum_insert(type.get(), "FALSE", &no);
  H5Tenum_insert(type.get(), "TRUE", &yes);
  return type;
}

Hdf5Type complex_type(hid_t part) {
  size_t bytes = H5Tget_size(part);
  Hdf5Type type(H5Tcreate(H5T_COMPOUND, 2 * bytes));
  H5Tinsert(type.get(), "r", 0, part);
  H5Tinsert(type.get(), "i", bytes, part);
  return type;
}

}  // namespace

Hdf5StoredType hdf5_type_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: return {boolean_type()};
    case DType::kU8: return {copy_of(H5T_STD_U8LE)};
    case DType::kI8: return {copy_of(H5T_STD_I8LE)};
    case DType::kI16: return {copy_of(H5T_STD_I16LE)};
    case DType::kU16: return {copy_of(H5T_STD_U16LE)};
    case DType::kI32: return {copy_of(H5T_STD_I32LE)};
    case DType::kU32: return {copy_of(H5T_STD_U32LE)};
    case DType::kI64: return {copy_of(H5T_STD_I64LE)};
    case DType::kU64: return {copy_of(H5T_STD_U64LE)};
    case DType::kF16: return {half_type()};
    case DType::kF32: return {copy_of(H5T_IEEE_F32LE)};
    case DType::kF64: return {copy_of(H5T_IEEE_F64LE)};
    case DType::kC64: return {complex_type(H5T_IEEE_F32LE)};
    case DType::kC128: return {complex_type(H5T_IEEE_F64LE)};
    default: break;
  }
  const auto& row = dtype_row(dtype);
  bool shaped = row.block_elems != 1;
  return {Hdf5Type(H5Tcreate(H5T_OPAQUE, shaped ? 1 : row.block_bytes)), true, shaped};
}

namespace {

/// Opened when it is there. Errors: kCorrupt.
Result<std::optional<Hdf5Attribute>> open_attribute(hid_t object, const char* name) {
  htri_t there = H5Aexists(object, name);
  if (there < 0) return hdf5_error("cannot look up an HDF5 attribute");
  if (there == 0) return std::nullopt;
  Hdf5Attribute attribute(H5Aopen(object, name, H5P_DEFAULT));
  if (!attribute.ok()) return hdf5_error("cannot open an HDF5 attribute");
  return std::optional(std::move(attribute));
}

constexpr const char* kReferenceTag = "shardwright heap reference";

/// The library's hook for a conversion it has not: a stored variable-length string stays the reference that it is.
herr_t keep_reference(hid_t from, hid_t to, H5T_cdata_t* data, size_t, size_t, size_t, void*, void*, hid_t) {
  if (data->command != H5T_CONV_INIT) return 0;
  data->need_bkg = H5T_BKG_NO;
  char* tag = H5Tget_tag(to);
  bool ours = tag != nullptr && std::string_view(tag) == kReferenceTag;
  H5free_memory(tag);
  bool same_size = H5Tget_size(from) == Hdf5HeapReference::kBytes && H5Tget_size(to) == Hdf5HeapReference::kBytes;
  return ours && same_size && H5Tis_variable_str(from) > 0 ? 0 : -1;
}

hid_t reference_type() {
  static const hid_t id = [] {
    hid_t type = H5Tcreate(H5T_OPAQUE, Hdf5HeapReference::kBytes);
    H5Tset_tag(type, kReferenceTag);
    auto text = copy_of(H5T_C_S1);
    H5Tset_size(text.get(), H5T_VARIABLE);
    H5Tregister(H5T_PERS_SOFT, kReferenceTag, text.get(), type, keep_reference);
    return type;
  }();
  return id;
}

Result<std::optional<std::string>> read_variable_string(const Hdf5Input& input, hid_t attribute) {
  Bytes reference(Hdf5HeapReference::kBytes);
  if (H5Aread(attribute, reference_type(), reference.data()) < 0) return hdf5_error("cannot read an HDF5 attribute");
  SHARDWRIGHT_ASSIGN(auto text, input.heap_text(reference));
  return text;
}

}  // namespace

Result<std::optional<std::string>> read_string_attribute(const Hdf5Input& input, hid_t object, const char* name) {
  SHARDWRIGHT_ASSIGN(auto attribute, open_attribute(object, name));
  if (!attribute) return std::nullopt;
  Hdf5Type type(H5Aget_type(attribute->get()));
  Hdf5Space space(H5Aget_space(attribute->get()));
  if (H5Tget_class(type.get()) != H5T_STRING || H5Sget_simple_extent_type(space.get()) != H5S_SCALAR)
    return std::nullopt;
  if (H5Tis_variable_str(type.get()) > 0) return read_variable_string(input, attribute->get());
  size_t bytes = H5Tget_size(type.get());
  if (bytes > kMaxHdf5TextBytes) return fail(Code::kResourceExhausted, "HDF5 attribute is too long");
  std::string text(bytes, '\0');
  if (H5Aread(attribute->get(), type.get(), text.data()) < 0) return hdf5_error("cannot read an HDF5 attribute");
  text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
  return text;
}

Result<std::optional<std::vector<int64_t>>> read_integers_attribute(hid_t object, const char* name) {
  SHARDWRIGHT_ASSIGN(auto attribute, open_attribute(object, name));
  if (!attribute) return std::nullopt;
  Hdf5Type type(H5Aget_type(attribute->get()));
  Hdf5Space space(H5Aget_space(attribute->get()));
  hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(type.get()) != H5T_INTEGER || count < 0 || count > 255) return std::nullopt;
  std::vector<int64_t> values(static_cast<size_t>(count));
  if (count > 0 && H5Aread(attribute->get(), H5T_NATIVE_INT64, values.data()) < 0)
    return hdf5_error("cannot read an HDF5 attribute");
  return values;
}

Status write_string_attribute(hid_t object, const char* name, const std::string& text) {
  auto type = copy_of(H5T_C_S1);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  Hdf5Space space(H5Screate(H5S_SCALAR));
  Hdf5Attribute attribute(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  const char* value = text.c_str();
  if (!attribute.ok() || H5Awrite(attribute.get(), type.get(), &value) < 0)
    return hdf5_error("cannot write an HDF5 attribute");
  return {};
}

Status write_integers_attribute(hid_t object, const char* name, const std::vector<int64_t>& values) {
  hsize_t count = values.size();
  Hdf5Space space(count == 0 ? H5Screate(H5S_NULL) : H5Screate_simple(1, &count, nullptr));
  Hdf5Attribute attribute(H5Acreate2(object, name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute.ok() || (count > 0 && H5Awrite(attribute.get(), H5T_NATIVE_INT64, values.data()) < 0))
    return hdf5_error("cannot write an HDF5 attribute");
  return {};
}

namespace {

constexpr const char* kNameAttribute = "shardwright_name";

}  // namespace

Result<std::optional<std::string>> read_name_attribute(const Hdf5Input& input, hid_t object) {
  SHARDWRIGHT_ASSIGN(auto text, read_string_attribute(input, object, kNameAttribute));
  if (text) return text;
  SHARDWRIGHT_ASSIGN(auto attribute, open_attribute(object, kNameAttribute));
  if (!attribute) return std::nullopt;
  Hdf5Type type(H5Aget_type(attribute->get()));
  Hdf5Space space(H5Aget_space(attribute->get()));
  hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(type.get()) != H5T_INTEGER || H5Tget_size(type.get()) != 1 || count < 1 ||
      count > hssize_t{kMaxHdf5TextBytes})
    return fail(Code::kCorrupt, "attribute `shardwright_name` is neither text nor bytes");
  std::string name(static_cast<size_t>(count), '\0');
  if (H5Aread(attribute->get(), type.get(), name.data()) < 0) return hdf5_error("cannot read an HDF5 attribute");
  return name;
}

Status write_name_attribute(hid_t object, const std::string& name) {
  if (name.size() > kMaxHdf5TextBytes) return fail(Code::kUnsupported, "name is too long for an HDF5 attribute");
  // HDF5's strings end at a NUL.
  if (name.find('\0') == std::string::npos) return write_string_attribute(object, kNameAttribute, name);
  hsize_t count = name.size();
  Hdf5Space space(H5Screate_simple(1, &count, nullptr));
  Hdf5Attribute attribute(H5Acreate2(object, kNameAttribute, H5T_STD_U8LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute.ok() || H5Awrite(attribute.get(), H5T_STD_U8LE, name.data()) < 0)
    return hdf5_error("cannot write an HDF5 attribute");
  return {};
}

}  // namespace shardwright
