#include "shardwright/format/zarr_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

using namespace detail;

Error corrupt(const std::string& what) { return fail(Code::kCorrupt, "zarr array: " + what); }

Result<Json> parse_object(std::string_view text, int version) {
  SHARDWRIGHT_ASSIGN(Json json, parse_json(text));
  if (!json.is_object()) return corrupt("its metadata is no JSON object");
  if (json_member(json, "zarr_format") != version)
    return fail(Code::kUnsupported, "zarr array of another version than its file name says")
        .with_found(json_member(json, "zarr_format").dump());
  return json;
}

/// A chunk has as many dimensions as the array and fits 63 bits.
Status check_chunk(const ZarrArray& array, std::span<const int64_t> chunk, const char* what) {
  if (chunk.size() != array.shape.size())
    return corrupt(fmt::format("{} and shape have different numbers of dimensions", what));
  auto bytes = bytes_of_elements(array.dtype, element_count(chunk).value_or(kUnknown));
  if (!bytes || *bytes > (uint64_t{1} << 60)) return corrupt(fmt::format("{} is larger than any", what));
  return {};
}

/// Codecs of one chunk of extents `chunk`: transposes, then bytes, then bytes to bytes.
class CodecList {
 public:
  CodecList(ZarrArray& array, std::vector<int64_t> chunk)
      : array_(array), chunk_(std::move(chunk)), order_(chunk_.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
  }

  Status parse(const Json& codecs, bool within_shard = false) {
    if (!codecs.is_array() || codecs.size() > 16) return corrupt("'codecs' is no list");
    for (const auto& codec : codecs) {
      std::string name = codec.is_string() ? codec.get<std::string>() : "";
      if (codec.is_object() && json_member(codec, "name").is_string())
        name = json_member(codec, "name").get<std::string>();
      const Json& settings = codec.is_object() ? json_member(codec, "configuration") : json_member(Json::object(), "");
      if (name.empty()) return corrupt("a codec has no name");
      SHARDWRIGHT_TRY(add(name, settings, within_shard));
    }
    if (!has_bytes_) return corrupt("no codec makes bytes of the chunk");
    if (!sharded_) set_zarr_order(array_, order_, chunk_);
    return {};
  }

 private:
  Status add(const std::string& name, const Json& settings, bool within_shard) {
    if (name == "transpose") return add_transpose(settings);
    if (name == "bytes" || name == "endian") return add_bytes(settings);
    if (name == "sharding_indexed") return within_shard ? nested() : add_sharding(settings);
    if (!has_bytes_) return corrupt("a codec of bytes stands before there are any: '" + name + "'");
    if (sharded_ && !array_.inner.empty())
      return fail(Code::kUnsupported, "zarr shards that are encoded as a whole").with_found("'" + name + "'");
    SHARDWRIGHT_ASSIGN(auto spec, parse_zarr_codec(name, settings, dtype_row(array_.dtype).block_bytes));
    array_.chain.push_back(std::move(spec));
    return {};
  }

  static Error nested() { return fail(Code::kUnsupported, "zarr shards within shards"); }

  Status add_transpose(const Json& settings) {
    if (has_bytes_) return corrupt("a transpose of bytes");
    const Json& order = settings.is_object() ? json_member(settings, "order") : settings;
    std::vector<uint64_t> turned;
    if (order.is_array())
      for (const auto& d : order) turned.push_back(d.is_number_unsigned() ? d.get<uint64_t>() : kUnknown);
    else if (order == "F")
      for (size_t d = order_.size(); d-- > 0;) turned.push_back(d);
    else if (order == "C")
      return {};
    auto sorted = turned;
    std::sort(sorted.begin(), sorted.end());
    for (size_t d = 0; d < sorted.size(); ++d)
      if (sorted[d] != d) turned.clear();
    if (turned.size() != order_.size()) return corrupt("'order' of a transpose is no order of the dimensions");
    std::vector<uint64_t> both;
    for (uint64_t d : turned) both.push_back(order_[d]);
    order_ = std::move(both);
    return {};
  }

  Status add_bytes(const Json& settings) {
    if (has_bytes_) return corrupt("two codecs make bytes of the chunk");
    has_bytes_ = true;
    const Json& endian = settings.is_object() ? json_member(settings, "endian") : settings;
    bool big = endian == "big";
    if (settings.is_object() && settings.contains("endian") && !big && endian != "little")
      return corrupt("'endian' is neither little nor big").with_found(endian.dump());
    array_.big_endian = big && dtype_row(array_.dtype).block_bytes > 1;
    return {};
  }

  Status add_sharding(const Json& settings) {
    if (has_bytes_) return corrupt("two codecs make bytes of the chunk");
    if (!std::is_sorted(order_.begin(), order_.end()))
      return fail(Code::kUnsupported, "zarr shards that are transposed as a whole");
    if (!settings.is_object()) return corrupt("a shard without configuration");
    SHARDWRIGHT_ASSIGN(auto inner, parse_zarr_extents(json_member(settings, "chunk_shape"), 1, "chunk_shape"));
    SHARDWRIGHT_TRY(check_chunk(array_, inner, "a chunk of a shard"));
    uint64_t count = 1;
    for (size_t d = 0; d < inner.size(); ++d) {
      if (chunk_[d] % inner[d] != 0) return corrupt("chunks do not divide their shard");
      count *= static_cast<uint64_t>(chunk_[d] / inner[d]);
    }
    has_bytes_ = sharded_ = true;
    array_.index_first = json_member(settings, "index_location") == "start";
    SHARDWRIGHT_TRY(parse_index_codecs(json_member(settings, "index_codecs")));
    CodecList list(array_, inner);
    SHARDWRIGHT_TRY(list.parse(json_member(settings, "codecs"), /*within_shard=*/true));
    // One chunk with its index at the end: a codec like others, and no index to be read beforehand.
    if (count == 1 && !array_.index_first && array_.index_has_sum && array_.order.empty())
      array_.chain.push_back({"sharding_indexed"});
    else
      array_.inner = std::move(inner);
    return {};
  }

  Status parse_index_codecs(const Json& codecs) {
    std::vector<std::string> names;
    if (codecs.is_array())
      for (const auto& codec : codecs) {
        names.push_back(codec.is_object() && json_member(codec, "name").is_string()
                            ? json_member(codec, "name").get<std::string>()
                            : "");
        if (codec.is_object() && json_member(codec, "configuration").is_object() &&
            json_member(json_member(codec, "configuration"), "endian") == "big")
          names.back() = "big-endian";
      }
    array_.index_has_sum = names.size() == 2 && names[1] == "crc32c";
    if (!names.empty() && names[0] == "bytes" && (names.size() == 1 || array_.index_has_sum)) return {};
    return fail(Code::kUnsupported, "zarr shards with an index that is encoded otherwise").with_found(codecs.dump());
  }

  ZarrArray& array_;
  const std::vector<int64_t> chunk_;
  std::vector<uint64_t> order_;
  bool has_bytes_ = false, sharded_ = false;
};

/// What a reader does not know it may pass over only where the writer says so.
Status check_members(const Json& json) {
  constexpr std::string_view kKnown[] = {"zarr_format",         "node_type",  "shape",  "data_type",  "chunk_grid",
                                         "chunk_key_encoding",  "fill_value", "codecs", "attributes", "dimension_names",
                                         "storage_transformers"};
  for (const auto& [name, value] : json.items()) {
    if (std::ranges::find(kKnown, name) != std::end(kKnown)) continue;
    if (!value.is_object() || json_member(value, "must_understand") != false)
      return fail(Code::kUnsupported, "zarr array with a member that must be understood").with_found(json_quote(name));
  }
  return {};
}

Status parse_chunk_keys(ZarrArray& array, const Json& encoding) {
  std::string name = encoding.is_object() && json_member(encoding, "name").is_string()
                         ? json_member(encoding, "name").get<std::string>()
                         : "";
  if (name != "default" && name != "v2")
    return fail(Code::kUnsupported, "zarr array with keys of another kind").with_found(encoding.dump());
  array.separator = name == "default" ? '/' : '.';
  const Json& settings = json_member(encoding, "configuration");
  if (settings.is_object() && settings.contains("separator")) {
    const Json& separator = json_member(settings, "separator");
    if (separator != "/" && separator != ".") return corrupt("a separator of keys that is none");
    array.separator = separator.get_ref<const std::string&>()[0];
  }
  array.key_prefix = name == "default" ? std::string("c") + array.separator : "";
  array.key_of_scalar = name == "default" ? "c" : "0";
  return {};
}

}  // namespace

void ZarrArray::look_into_shards() {
  if (chain.empty() || chain.back().name != "sharding_indexed") return;
  chain.pop_back();
  inner = chunk;
}

uint64_t ZarrArray::chunk_elements() const { return element_count(inner.empty() ? chunk : inner).value_or(kUnknown); }

std::string ZarrArray::key_of(std::span<const int64_t> index) const {
  if (index.empty()) return key_of_scalar;
  std::string key = key_prefix;
  for (size_t d = 0; d < index.size(); ++d) {
    if (d > 0) key += separator;
    key += std::to_string(index[d]);
  }
  return key;
}

std::optional<uint64_t> ZarrArray::index_of(std::string_view key, std::span<const int64_t> counts) const {
  std::vector<int64_t> index(counts.size());
  const char *at = key.data(), *end = at + key.size();
  if (!counts.empty()) {
    if (!key.starts_with(key_prefix)) return std::nullopt;
    at += key_prefix.size();
  }
  uint64_t linear = 0;
  for (size_t d = 0; d < counts.size(); ++d) {
    if (d > 0 && (at == end || *at++ != separator)) return std::nullopt;
    auto [after, problem] = std::from_chars(at, end, index[d]);
    if (problem != std::errc() || index[d] < 0 || index[d] >= counts[d]) return std::nullopt;
    at = after;
    linear = linear * static_cast<uint64_t>(counts[d]) + static_cast<uint64_t>(index[d]);
  }
  return key_of(index) == key ? std::optional(linear) : std::nullopt;  // not "01"
}

Result<ZarrArray> parse_zarr2_array(std::string_view text) {
  SHARDWRIGHT_ASSIGN(Json json, parse_object(text, 2));
  ZarrArray array;
  SHARDWRIGHT_ASSIGN(array.shape, parse_zarr_extents(json_member(json, "shape"), 0, "shape"));
  // zarr-python gives what has no elements chunks of none.
  bool none = element_count(array.shape) == 0;
  SHARDWRIGHT_ASSIGN(array.chunk, parse_zarr_extents(json_member(json, "chunks"), none ? 0 : 1, "chunks"));
  for (auto& extent : array.chunk) extent = std::max<int64_t>(extent, 1);
  const Json& type = json_member(json, "dtype");
  if (!type.is_string()) return fail(Code::kUnsupported, "zarr array of records").with_found(type.dump());
  SHARDWRIGHT_TRY(set_zarr_type(array, type.get_ref<const std::string&>()));
  SHARDWRIGHT_TRY(check_chunk(array, array.chunk, "'chunks'"));
  if (!json.contains("fill_value")) return corrupt("'fill_value' is missing");
  SHARDWRIGHT_TRY(set_zarr_fill(array, json_member(json, "fill_value")));
  array.key_of_scalar = "0";
  const Json& separator = json_member(json, "dimension_separator");
  if (!separator.is_null() && separator != "." && separator != "/") return corrupt("a separator of keys that is none");
  if (separator == "/") array.separator = '/';
  auto add = [&](const Json& codec) -> Status {
    if (!codec.is_object() || !json_member(codec, "id").is_string()) return corrupt("a codec has no id");
    SHARDWRIGHT_ASSIGN(auto spec, parse_zarr_codec(json_member(codec, "id").get_ref<const std::string&>(), codec,
                                                   dtype_row(array.dtype).block_bytes));
    array.chain.push_back(std::move(spec));
    return {};
  };
  const Json &filters = json_member(json, "filters"), &compressor = json_member(json, "compressor"),
             &order = json_member(json, "order");
  if (!filters.is_null() && (!filters.is_array() || filters.size() > 16)) return corrupt("'filters' is no list");
  for (const auto& filter : filters) SHARDWRIGHT_TRY(add(filter));
  if (!compressor.is_null()) SHARDWRIGHT_TRY(add(compressor));
  if (order != "C" && order != "F") return corrupt("'order' is neither C nor F");
  std::vector<uint64_t> dims(array.shape.size());
  std::iota(dims.begin(), dims.end(), 0u);
  if (order == "F") std::reverse(dims.begin(), dims.end());
  set_zarr_order(array, std::move(dims), array.chunk);
  return array;
}

Result<ZarrArray> parse_zarr3_array(std::string_view text) {
  SHARDWRIGHT_ASSIGN(Json json, parse_object(text, 3));
  if (json_member(json, "node_type") != "array") return fail(Code::kCorrupt, std::string(kZarrNoArray));
  SHARDWRIGHT_TRY(check_members(json));
  ZarrArray array;
  array.zarr3 = true;
  SHARDWRIGHT_ASSIGN(array.shape, parse_zarr_extents(json_member(json, "shape"), 0, "shape"));
  const Json& grid = json_member(json, "chunk_grid");
  if (!grid.is_object() || json_member(grid, "name") != "regular" || !json_member(grid, "configuration").is_object())
    return fail(Code::kUnsupported, "zarr array on an irregular grid").with_found(grid.dump());
  SHARDWRIGHT_ASSIGN(array.chunk, parse_zarr_extents(json_member(json_member(grid, "configuration"), "chunk_shape"), 1,
                                                     "chunk_shape"));
  const Json& type = json_member(json, "data_type");
  if (!type.is_string())
    return fail(Code::kUnsupported, "zarr array of a type that is not known here").with_found(type.dump());
  SHARDWRIGHT_TRY(set_zarr_type(array, type.get_ref<const std::string&>()));
  SHARDWRIGHT_TRY(check_chunk(array, array.chunk, "'chunk_shape'"));
  SHARDWRIGHT_TRY(parse_chunk_keys(array, json_member(json, "chunk_key_encoding")));
  const Json& transformers = json_member(json, "storage_transformers");
  if (transformers.is_array() && !transformers.empty())
    return fail(Code::kUnsupported, "zarr array with storage transformers").with_found(transformers.dump());
  SHARDWRIGHT_TRY(CodecList(array, array.chunk).parse(json_member(json, "codecs")));
  if (json_member(json, "fill_value").is_null()) return corrupt("'fill_value' is missing or null");
  SHARDWRIGHT_TRY(set_zarr_fill(array, json_member(json, "fill_value")));
  return array;
}

std::string zarr_array_text(std::span<const int64_t> shape, std::span<const int64_t> chunk, std::string_view type_name,
                            const ZarrWriteOptions& options) {
  std::string shape_list = fmt::format("[{}]", fmt::join(shape, ",")),
              chunk_list = fmt::format("[{}]", fmt::join(chunk, ","));
  if (!options.zarr3) {
    std::string compressor = options.zstd ? fmt::format(R"({{"id":"zstd","level":{}}})", options.level) : "null";
    return fmt::format(R"({{"chunks":{},"compressor":{},"dimension_separator":".","dtype":{},"fill_value":null,)"
                       R"("filters":null,"order":"C","shape":{},"zarr_format":2}})",
                       chunk_list, compressor, json_quote(type_name), shape_list);
  }
  bool real = type_name.find("float") != type_name.npos;
  std::string fill = type_name == "bool"                ? "false"
                     : type_name.starts_with("complex") ? "[0.0,0.0]"
                     : real                             ? "0.0"
                                                        : "0";
  std::string zstd =
      options.zstd ? fmt::format(R"(,{{"configuration":{{"checksum":false,"level":{}}},"name":"zstd"}})", options.level)
                   : "";
  constexpr std::string_view kBytes = R"({"configuration":{"endian":"little"},"name":"bytes"})";
  return fmt::format(
      R"({{"chunk_grid":{{"configuration":{{"chunk_shape":{0}}},"name":"regular"}},"chunk_key_encoding":{{"name":"default"}},)"
      R"("codecs":[{{"configuration":{{"chunk_shape":{0},"codecs":[{1}{2}],"index_codecs":[{1},{{"name":"crc32c"}}]}},)"
      R"("name":"sharding_indexed"}}],"data_type":{3},"fill_value":{4},"node_type":"array","shape":{5},"zarr_format":3}})",
      chunk_list, kBytes, zstd, json_quote(type_name), fill, shape_list);
}

}  // namespace shardwright
