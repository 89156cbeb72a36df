#include "shardwright/format/offload_index.h"

#include <algorithm>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/format/json_scan.h"

namespace shardwright {
namespace {

Result<std::optional<DType>> dtype_of(const Json& entry) {
  const Json& given = json_member(entry, "dtype");
  if (given.is_null()) return std::optional<DType>();
  if (!given.is_string()) return fail(Code::kCorrupt, "dtype is no text").with_found(given.type_name());
  const auto& text = given.get_ref<const std::string&>();
  for (const DTypeRow& row : dtype_table())
    if (row.numpy_name == text) return std::optional(row.dtype);
  return fail(Code::kUnsupported, "no such dtype").with_found("'" + text.substr(0, 40) + "'");
}

Result<std::vector<int64_t>> shape_of(const Json& entry) {
  const Json& given = json_member(entry, "shape");
  if (!given.is_array()) return fail(Code::kCorrupt, "no shape").with_expected("a list of extents");
  std::vector<int64_t> shape;
  for (const Json& extent : given) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > INT64_MAX)
      return fail(Code::kCorrupt, "an extent is no whole number from 0 on").with_found(extent.dump().substr(0, 40));
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

/// A member that is text where it is there.
Result<std::string> text_member(const Json& entry, std::string_view key) {
  const Json& given = json_member(entry, key);
  if (given.is_null()) return std::string();
  if (!given.is_string()) return fail(Code::kCorrupt, std::string(key) + " is no text").with_found(given.type_name());
  return given.get<std::string>();
}

Result<OffloadEntry> entry_of(const std::string& name, const Json& json) {
  if (!json.is_object())
    return fail(Code::kCorrupt, "entry is not an object")
        .with_found(json.type_name())
        .with_expected(R"({"dtype": ..., "shape": [...]})");
  OffloadEntry entry;
  entry.name = name;
  SHARDWRIGHT_ASSIGN(entry.dtype, dtype_of(json));
  SHARDWRIGHT_ASSIGN(entry.safetensors_file, text_member(json, "safetensors_file"));
  if (!entry.own_file()) {
    SHARDWRIGHT_ASSIGN(entry.weight_name, text_member(json, "weight_name"));
    if (!json.contains("weight_name")) entry.weight_name = name;
    return entry;
  }
  if (!entry.dtype) return fail(Code::kCorrupt, "no dtype").with_expected("a name such as \"float32\"");
  SHARDWRIGHT_ASSIGN(entry.shape, shape_of(json));
  return entry;
}

}  // namespace

Result<std::vector<OffloadEntry>> parse_offload_index(std::string_view text,
                                                      const std::function<Status(Error)>& report) {
  SHARDWRIGHT_ASSIGN(auto root, parse_json(text));
  if (!root.is_object())
    return fail(Code::kCorrupt, "index is not an object")
        .with_found(root.type_name())
        .with_expected(R"({"name": {"dtype": ..., "shape": [...]}, ...})");
  std::vector<OffloadEntry> out;
  out.reserve(root.size());
  for (const auto& [name, json] : root.items()) {
    auto entry = entry_of(name, json);
    if (entry.ok()) {
      out.push_back(std::move(*entry));
      continue;
    }
    SHARDWRIGHT_TRY(report(std::move(entry.error()).at_tensor(name)));
  }
  return out;
}

bool looks_like_offload_index(std::string_view first_bytes) {
  detail::JsonScan scan(first_bytes);
  std::string_view name, member;
  if (!scan.symbol('{') || !scan.raw_string(name) || !scan.symbol(':') || !scan.symbol('{')) return false;
  return scan.raw_string(member) &&
         (member == "dtype" || member == "shape" || member == "safetensors_file" || member == "weight_name");
}

void OffloadIndexWriter::add(std::string_view name, DType dtype, std::span<const int64_t> shape) {
  Json entry = {{"dtype", dtype_row(dtype).numpy_name}, {"shape", shape}};
  Json whole = Json::object();
  whole[std::string(name)] = std::move(entry);
  // "{" newline, the member, newline "}": what is between belongs into the whole.
  std::string text = whole.dump(2, ' ', true, Json::error_handler_t::replace);
  out_ += out_.size() == 1 ? "" : ",";
  out_ += text.substr(1, text.size() - 3);
}

Bytes OffloadIndexWriter::finish() {
  out_ += out_.size() == 1 ? "}" : "\n}";
  return bytes_of(std::exchange(out_, "{"));
}

}  // namespace shardwright
