#include <filesystem>
#include <map>
#include <set>

#include "shardwright/base/json.h"
#include "shardwright/engine/begin.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

/// What an index says: name -> file, or list of files, as JSON text; and all files.
struct WeightMap {
  std::map<std::string, std::string> lines;
  std::set<std::string> files;
};

/// Empty for an index that cannot be read, which is why one rebuilds it.
WeightMap weight_map(View bytes) {
  WeightMap out;
  auto json = parse_json(text_of(bytes));
  if (!json.ok() || !json->is_object()) return out;
  auto at = json->find("weight_map");
  if (at == json->end() || !at->is_object()) return out;
  for (const auto& [name, value] : at->items()) {
    out.lines.emplace(name, value.dump());
    for (const auto& file : value.is_array() ? value : Json::array({value}))
      if (file.is_string()) out.files.insert(file.get<std::string>());
  }
  return out;
}

struct Rebuilt {
  std::string key;
  Bytes bytes;
};

Result<Rebuilt> rebuild(Store& store, const std::string& at, const std::string& path, const OpenOptions& options) {
  std::optional<Error> first;
  for (const Format* format : format_table()) {
    if (format->rebuild_index == nullptr) continue;
    auto built = format->rebuild_index(store, at, options);
    if (built.ok()) return Rebuilt{std::move(built->first), std::move(built->second)};
    // "Nothing of mine here" is no reason to stop; a broken shard is.
    if (built.error().code != Code::kNotFound) return std::move(built.error());
    if (!first) first = std::move(built.error());
  }
  if (first) return std::move(*first);
  return fail(Code::kNotFound, "no shards here that an index could name").at_path(path);
}

}  // namespace

Result<ReindexSummary> reindex_checkpoint(const std::string& path, bool dry_run, const JobOptions& options) {
  std::error_code error;
  fs::path given(path);
  bool directory = fs::is_directory(given, error);
  fs::path root = directory ? given : given.parent_path();
  if (root.empty()) root = ".";
  if (!fs::is_directory(root, error)) return fail(Code::kNotFound, "no such directory").at_path(root.string());
  if (!directory && !path.ends_with(".safetensors.index.json") && !path.ends_with(".weights.json"))
    return fs::exists(given, error) ? fail(Code::kInvalidArgument, "neither a directory nor an index").at_path(path)
                                    : fail(Code::kNotFound, "no such directory").at_path(path);
  SHARDWRIGHT_ASSIGN(auto store, open_file_store(root.string()));
  SHARDWRIGHT_TRY(store->recover(""));
  SHARDWRIGHT_ASSIGN(auto rebuilt, rebuild(*store, directory ? "" : given.filename().string(), path, options.open));
  auto now = weight_map(rebuilt.bytes);
  WeightMap before;
  SHARDWRIGHT_ASSIGN(auto size, store->size(rebuilt.key));
  if (size) {
    SHARDWRIGHT_ASSIGN(auto bytes, read_object(*store, rebuilt.key, kMaxIndexBytes));
    before = weight_map(bytes);
  }
  ReindexSummary summary;
  summary.index = store->describe(rebuilt.key);
  summary.tensors = now.lines.size();
  summary.shards = now.files.size();
  for (const auto& [name, file] : now.lines) {
    auto old = before.lines.find(name);
    if (old == before.lines.end())
      summary.added.push_back(name);
    else if (old->second != file)
      summary.moved.push_back(name);
  }
  for (const auto& [name, file] : before.lines)
    if (!now.lines.contains(name)) summary.removed.push_back(name);
  if (dry_run) return summary;
  SHARDWRIGHT_ASSIGN(auto begun, begin_in_turn(*store, "", options));
  SHARDWRIGHT_TRY(write_object(*begun.transaction, rebuilt.key, rebuilt.bytes));
  SHARDWRIGHT_TRY(begun.transaction->commit({{rebuilt.key}, {}, {rebuilt.key}}));
  return summary;
}

}  // namespace shardwright
