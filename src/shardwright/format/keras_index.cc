#include "shardwright/format/keras_index.h"

#include <algorithm>
#include <charconv>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"

namespace shardwright {
namespace {

/// "/layers/dense/vars" -> "layers/dense/vars".
std::string_view without_slash(std::string_view key) { return key.starts_with('/') ? key.substr(1) : key; }

class IndexParser {
 public:
  Status add(const std::string& key, const Json& value) {
    KerasIndex::Entry entry;
    entry.group = without_slash(key);
    entry.list = value.is_array();
    if (!value.is_string() && !value.is_array())
      return bad(key, "neither a file name nor a list of them", value.type_name());
    if (value.is_array() && value.empty()) return bad(key, "names no file", "[]");
    if (!entry.list) SHARDWRIGHT_TRY(add_file(key, value, entry));
    if (entry.list)
      for (const auto& file : value) SHARDWRIGHT_TRY(add_file(key, file, entry));
    index.entries.push_back(std::move(entry));
    return {};
  }

  KerasIndex index;

 private:
  static Error bad(const std::string& key, std::string what, std::string found) {
    return fail(Code::kCorrupt, "weight_map entry '" + key + "': " + std::move(what)).with_found(std::move(found));
  }

  Status add_file(const std::string& key, const Json& value, KerasIndex::Entry& entry) {
    if (!value.is_string()) return bad(key, "file name is no string", value.type_name());
    const auto& file = value.get_ref<const std::string&>();
    if (!is_safe_relative_path(file) || file.find('/') != std::string::npos)
      return bad(key, "not the name of a file beside the index", "'" + file + "'");
    auto [at, fresh] = numbers_.try_emplace(file, static_cast<uint32_t>(index.files.size()));
    if (fresh) index.files.push_back(file);
    entry.files.push_back(at->second);
    return {};
  }

  std::unordered_map<std::string, uint32_t> numbers_;
};

void read_metadata(const Json& root, KerasIndex& index) {
  auto metadata = root.find("metadata");
  if (metadata == root.end() || !metadata->is_object()) return;
  Json rest = Json::object();
  for (const auto& [key, value] : metadata->items()) {
    if (key == "total_size" && value.is_number()) {
      index.total_size = value.get<double>();
    } else if (key != "total_size") {
      rest.push_back({key, value});
    }
  }
  if (!rest.empty()) index.metadata = json_text(rest);
}

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace); }

/// A value as json.dumps(indent=4) writes it at the depth of the index's "metadata".
std::string dumped(const Json& value) {
  std::string out;
  for (char c : value.dump(4, ' ', true, Json::error_handler_t::replace)) {
    out += c;
    if (c == '\n') out += "        ";
  }
  return out;
}

}  // namespace

void KerasIndexBuilder::add(std::string_view group, uint32_t file) {
  auto [at, fresh] = entries_.try_emplace(std::string(group), index.entries.size());
  if (fresh) {
    index.entries.push_back({at->first, {file}, false});
    return;
  }
  auto& entry = index.entries[at->second];
  entry.list = true;
  if (std::find(entry.files.begin(), entry.files.end(), file) == entry.files.end()) entry.files.push_back(file);
}

Result<KerasIndex> parse_keras_index(std::string_view text) {
  SHARDWRIGHT_ASSIGN(auto root, parse_json(text));
  if (!root.is_object()) return fail(Code::kCorrupt, "index is no JSON object").with_found(root.type_name());
  auto map = root.find("weight_map");
  if (map == root.end() || !map->is_object())
    return fail(Code::kCorrupt, "index has no \"weight_map\"")
        .with_hint("`shardwright reindex` makes a new one from the shards");
  IndexParser parser;
  for (const auto& [key, value] : map->items()) SHARDWRIGHT_TRY(parser.add(key, value));
  read_metadata(root, parser.index);
  return std::move(parser.index);
}

std::string python_float(double value) {
  char buffer[400];
  auto format = value < 1e16 ? std::chars_format::fixed : std::chars_format::scientific;
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string out(buffer, end);
  if (format == std::chars_format::fixed && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string format_keras_index(const KerasIndex& index) {
  // Without variables Keras's sum is still the integer it began with.
  std::string out = "{\n    \"metadata\": {\n        \"total_size\": ";
  out += index.entries.empty() ? "0" : python_float(index.total_size.value_or(0));
  if (auto metadata = parse_json(index.metadata); metadata.ok() && metadata->is_object())
    for (const auto& [key, value] : metadata->items())
      if (key != "total_size") out += ",\n        " + quoted(key) + ": " + dumped(value);
  out += "\n    },\n    \"weight_map\": {";
  const char* separator = "\n";
  for (const auto& entry : index.entries) {
    out += separator;
    separator = ",\n";
    out += "        " + quoted("/" + entry.group) + ": ";
    if (!entry.list) {
      out += quoted(index.files[entry.files.front()]);
      continue;
    }
    out += "[\n";
    for (size_t i = 0; i < entry.files.size(); ++i)
      out += (i == 0 ? "            " : ",\n            ") + quoted(index.files[entry.files[i]]);
    out += "\n        ]";
  }
  return out + (index.entries.empty() ? "}" : "\n    }") + "\n}";
}

}  // namespace shardwright
