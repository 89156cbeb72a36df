// Names of types, fill values, and codecs that zarr 2 and 3 share.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "shardwright/format/zarr_metadata.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

struct NumpyType {
  std::string_view code;
  DType dtype;
};
constexpr NumpyType kNumpyTypes[] = {
    {"b1", DType::kBool}, {"i1", DType::kI8},  {"u1", DType::kU8},  {"i2", DType::kI16},   {"u2", DType::kU16},
    {"i4", DType::kI32},  {"u4", DType::kU32}, {"i8", DType::kI64}, {"u8", DType::kU64},   {"f2", DType::kF16},
    {"f4", DType::kF32},  {"f8", DType::kF64}, {"c8", DType::kC64}, {"c16", DType::kC128},
};
/// Types of less than a byte that zarr stores one value a byte.
struct SmallType {
  std::string_view name;
  SmallInt type;
};
constexpr SmallType kSmallTypes[] = {
    {"int2", {2, true}}, {"int4", {4, true}}, {"uint2", {2, false}}, {"uint4", {4, false}}};

Error unknown_type(std::string_view name) {
  return fail(Code::kUnsupported, "zarr array of a type that is not known here")
      .with_found("'" + std::string(name) + "'");
}

Status put_float(Bytes& out, DType dtype, double value) {
  if (dtype == DType::kF8E8M0) {  // powers of two, which nothing is converted to; it has no zero
    int exponent = 0;
    std::frexp(value, &exponent);
    out.push_back(static_cast<std::byte>(std::isnan(value) ? 255
                                         : value <= 0      ? 0
                                                           : std::clamp(exponent + 126, 0, 254)));
    return {};
  }
  Bytes wide;
  append_le(wide, value);
  size_t at = out.size();
  out.resize(at + dtype_row(dtype).block_bytes);
  return convert(DType::kF64, wide, dtype, MutableView(out).subspan(at));
}

/// Text that is a number, "0x1p3" too; nullopt for what is none.
std::optional<double> number_of(std::string_view text) {
  bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  double number = 0;
  auto format = hex ? std::chars_format::hex : std::chars_format::general;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, format);
  if (problem != std::errc() || end != text.data() + text.size() || text.starts_with('-')) return std::nullopt;
  return negative ? -number : number;
}

/// A number, one of zarr's words for what JSON has not, or text: zarr 3 has the bits in hex, zarr 2 any number.
Status put_real(Bytes& out, DType dtype, const Json& value, bool bits_in_hex) {
  DType real = dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
  size_t bytes = dtype_row(real).block_bytes;
  auto bad = [&] { return fail(Code::kCorrupt, "zarr fill value does not fit its type").with_found(value.dump()); };
  if (value.is_number()) return put_float(out, real, value.get<double>());
  if (!value.is_string()) return bad();
  const auto& text = value.get_ref<const std::string&>();
  if (text == "NaN") return put_float(out, real, std::numeric_limits<double>::quiet_NaN());
  if (text == "Infinity") return put_float(out, real, HUGE_VAL);
  if (text == "-Infinity") return put_float(out, real, -HUGE_VAL);
  if (!bits_in_hex) {
    auto number = number_of(text);
    return number ? put_float(out, real, *number) : bad();
  }
  if (!text.starts_with("0x") || text.size() != 2 + 2 * bytes) return bad();
  uint64_t bits = 0;
  for (char c : text.substr(2)) {
    auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 32));
    if (digit == std::string_view::npos) return bad();
    bits = bits << 4 | digit;
  }
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(bits >> 8 * i));
  return {};
}

Status put_integer(Bytes& out, const ZarrArray& array, const Json& value) {
  auto bad = [&] { return fail(Code::kCorrupt, "zarr fill value does not fit its type").with_found(value.dump()); };
  const auto& row = dtype_row(array.dtype);
  if (row.kind == Kind::kBool) {
    if (!value.is_boolean() && !(value.is_number_integer() && (value == 0 || value == 1))) return bad();
    out.push_back(static_cast<std::byte>(value.is_boolean() ? value.get<bool>() : value.get<int>() != 0));
    return {};
  }
  uint64_t bits = 0;
  bool negative = false;
  if (value.is_number_unsigned()) {
    bits = value.get<uint64_t>();
  } else if (value.is_number_integer()) {
    bits = static_cast<uint64_t>(value.get<int64_t>());
    negative = value.get<int64_t>() < 0;
  } else if (value.is_number_float() && value.get<double>() >= -0x1p63 && value.get<double>() < 0x1p64 &&
             std::floor(value.get<double>()) == value.get<double>()) {
    double number = value.get<double>();
    negative = number < 0;
    bits = negative ? static_cast<uint64_t>(static_cast<int64_t>(number)) : static_cast<uint64_t>(number);
  } else {
    return bad();
  }
  int width = 8 * row.block_bytes;
  uint64_t most = row.kind == Kind::kSigned ? (uint64_t{1} << (width - 1)) - 1
                  : width == 64             ? ~uint64_t{0}
                                            : (uint64_t{1} << width) - 1;
  if (negative ? row.kind != Kind::kSigned || ~bits > most : bits > most) return bad();
  for (int i = 0; i < row.block_bytes; ++i) out.push_back(static_cast<std::byte>(bits >> 8 * i));
  return {};
}

int64_t setting(const Json& settings, const char* key, int64_t otherwise) {
  auto at = settings.is_object() ? settings.find(key) : settings.end();
  return settings.is_object() && at != settings.end() && at->is_number_integer() ? at->get<int64_t>() : otherwise;
}

}  // namespace

std::string zarr_type_name(DType dtype, bool zarr3) {
  const auto& row = dtype_row(dtype);
  if (row.block_elems != 1) return "";
  if (zarr3) return std::string(row.numpy_name);
  for (const auto& [code, numpy] : kNumpyTypes)
    if (numpy == dtype) return (row.block_bytes == 1 ? "|" : "<") + std::string(code);
  return std::string(row.numpy_name);
}

namespace detail {

Status set_zarr_type(ZarrArray& array, std::string_view name) {
  for (const auto& [small, type] : kSmallTypes)
    if (small == name) {
      array.dtype = type.is_signed ? DType::kI8 : DType::kU8;
      array.stored_as = name;
      array.chain.push_back({"small_int", type.pack()});
      return {};
    }
  if (name.size() >= 2 && (name[0] == '<' || name[0] == '>' || name[0] == '|')) {
    auto row = std::ranges::find_if(kNumpyTypes, [&](const NumpyType& type) { return type.code == name.substr(1); });
    if (row == std::end(kNumpyTypes)) return unknown_type(name);
    array.dtype = row->dtype;
    if (name[0] == '|' && dtype_row(row->dtype).block_bytes > 1) return unknown_type(name);  // which order?
    array.big_endian = name[0] == '>' && dtype_row(row->dtype).block_bytes > 1;
    return {};
  }
  for (const auto& row : dtype_table())
    if (row.numpy_name == name && row.block_elems == 1) {
      array.dtype = row.dtype;
      return {};
    }
  return unknown_type(name);
}

Status set_zarr_fill(ZarrArray& array, const Json& value) {
  const auto& row = dtype_row(array.dtype);
  array.fill.clear();
  if (value.is_null()) {
    array.fill.resize(row.block_bytes);
    return {};
  }
  switch (row.kind) {
    case Kind::kFloat: SHARDWRIGHT_TRY(put_real(array.fill, array.dtype, value, array.zarr3)); break;
    case Kind::kComplex:
      if (!value.is_array() || value.size() != 2)
        return fail(Code::kCorrupt, "zarr fill value does not fit its type").with_found(value.dump());
      for (const auto& part : value) SHARDWRIGHT_TRY(put_real(array.fill, array.dtype, part, array.zarr3));
      break;
    default: SHARDWRIGHT_TRY(put_integer(array.fill, array, value));
  }
  if (array.big_endian) byteswap(array.fill, swap_unit_bytes(array.dtype));
  return {};
}

Result<CodecSpec> parse_zarr_codec(std::string_view name, const Json& settings, uint64_t element_bytes) {
  if (name.starts_with("numcodecs.")) name.remove_prefix(10);
  auto level = [&](int64_t otherwise) { return static_cast<uint64_t>(setting(settings, "level", otherwise)); };
  if (name == "zstd") return CodecSpec{"zstd", level(0)};
  if (name == "gzip" || name == "zlib") return CodecSpec{std::string(name), level(1)};
  if (name == "lz4" || name == "crc32c") return CodecSpec{std::string(name)};
  if (name == "blosc")
    return CodecSpec{"blosc", BloscParameters{.element_bytes = static_cast<uint32_t>(element_bytes)}.pack()};
  if (name == "shuffle") {
    if (settings.is_object() && settings.contains("elementsize") && !settings["elementsize"].is_number_integer())
      return fail(Code::kCorrupt, "zarr array: 'elementsize' of a shuffle is no number")
          .with_found(settings["elementsize"].dump());
    return CodecSpec{"shuffle", static_cast<uint64_t>(setting(settings, "elementsize", 4))};
  }
  if (name == "fletcher32") return CodecSpec{"fletcher32"};
  return fail(Code::kUnsupported, "zarr array with a codec that is not known here")
      .with_found("'" + std::string(name) + "'");
}

Result<std::vector<int64_t>> parse_zarr_extents(const Json& value, int64_t least, const char* what) {
  auto bad = [&] { return fail(Code::kCorrupt, fmt::format("zarr array: '{}' is no list of sizes", what)); };
  if (!value.is_array() || value.size() > 32) return bad();
  std::vector<int64_t> out;
  for (const auto& extent : value) {
    bool fits = extent.is_number_integer() && (!extent.is_number_unsigned() || extent.get<uint64_t>() <= INT64_MAX);
    if (!fits || extent.get<int64_t>() < least) return bad();
    out.push_back(extent.get<int64_t>());
  }
  auto elements = element_count(out);
  if (!elements || *elements > (uint64_t{1} << 56)) return bad();
  return out;
}

void set_zarr_order(ZarrArray& array, std::vector<uint64_t> order, std::span<const int64_t> chunk) {
  if (std::is_sorted(order.begin(), order.end())) return;
  if (array.chain.empty()) {
    array.order = std::move(order);
    return;
  }
  CodecSpec transpose{"transpose", dtype_row(array.dtype).block_bytes, {chunk.begin(), chunk.end()}};
  transpose.values.insert(transpose.values.end(), order.begin(), order.end());
  array.chain.insert(array.chain.begin(), std::move(transpose));
}

}  // namespace detail
}  // namespace shardwright
