#include "cli/user_file.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <sstream>

#include "shardwright/store/store.h"

namespace shardwright::cli {
namespace {

constexpr uint64_t kMaxFileBytes = 16 * MiB;

struct FileName {
  std::string folder, name;
};

Result<FileName> split(const std::string& path) {
  size_t slash = path.rfind('/');
  if (path.empty() || slash + 1 == path.size())
    return fail(Code::kInvalidArgument, "a directory is no file").at_path(path);
  if (slash == path.npos) return FileName{".", path};
  return FileName{slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

Result<std::string> read_text(const std::string& path) {
  SHARDWRIGHT_ASSIGN(FileName file, split(path));
  SHARDWRIGHT_ASSIGN(std::unique_ptr<Store> store, open_file_store(file.folder));
  SHARDWRIGHT_ASSIGN(Bytes bytes, read_object(*store, file.name, kMaxFileBytes));
  return std::string(text_of(bytes));
}

Result<Json> parse_json_text(const std::string& path, std::string_view text) {
  Result<Json> json = parse_json(text);
  if (json.ok()) return json;
  json.error().code = Code::kInvalidArgument;
  return std::move(json.error()).at_path(path);
}

/// nullopt for what JSON has no value for. The parser limits nesting.
std::optional<Json> json_of(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    Json out = Json::object();
    for (const auto& [key, child] : *table) {
      auto value = json_of(child);
      if (!value) return std::nullopt;
      out.push_back({std::string(key.str()), std::move(*value)});
    }
    return out;
  }
  if (const auto* array = node.as_array()) {
    Json out = Json::array();
    for (const auto& child : *array) {
      auto value = json_of(child);
      if (!value) return std::nullopt;
      out.push_back(std::move(*value));
    }
    return out;
  }
  if (const auto* text = node.as_string()) return Json(text->get());
  if (const auto* number = node.as_integer()) return Json(number->get());
  if (const auto* number = node.as_floating_point()) return Json(number->get());
  if (const auto* truth = node.as_boolean()) return Json(truth->get());
  return std::nullopt;
}

Result<Json> parse_toml_text(const std::string& path, std::string_view text) {
  toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    std::string place =
        "line " + std::to_string(error.source().begin.line) + ", column " + std::to_string(error.source().begin.column);
    return fail(Code::kInvalidArgument, "is not TOML (" + place + "): " + std::string(error.description()))
        .at_path(path);
  }
  auto json = json_of(parsed.table());
  if (json) return std::move(*json);
  return fail(Code::kInvalidArgument, "dates and times mean nothing here").at_path(path);
}

}  // namespace

Result<Json> read_json_file(const std::string& path) {
  SHARDWRIGHT_ASSIGN(std::string text, read_text(path));
  return parse_json_text(path, text);
}

Result<Json> read_json_or_toml_file(const std::string& path) {
  SHARDWRIGHT_ASSIGN(std::string text, read_text(path));
  size_t first = text.find_first_not_of(" \t\r\n");
  bool json = !path.ends_with(".toml") && first != text.npos && text[first] == '{';
  return json ? parse_json_text(path, text) : parse_toml_text(path, text);
}

Status write_text_file(const std::string& path, std::string_view text) {
  SHARDWRIGHT_ASSIGN(FileName file, split(path));
  SHARDWRIGHT_ASSIGN(std::unique_ptr<Store> store, open_file_store(file.folder));
  SHARDWRIGHT_ASSIGN(auto transaction, store->begin(""));
  SHARDWRIGHT_TRY(write_object(*transaction, file.name, view_of(text)));
  return transaction->commit({{file.name}, {}, {}});
}

}  // namespace shardwright::cli
