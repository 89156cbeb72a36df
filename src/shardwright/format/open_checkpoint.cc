#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "shardwright/base/text.h"
#include "shardwright/format/format.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

Error no_such_path(const fs::path& path) {
  if (path.string().find("://") != std::string::npos)
    return fail(Code::kUnsupported, "URLs cannot be opened")
        .at_path(path.string())
        .with_hint("download it first, e.g. `hf download OWNER/NAME --local-dir DIRECTORY`");
  std::error_code ignored;
  std::vector<std::string> beside;
  for (fs::directory_iterator entry(path.parent_path().empty() ? "." : path.parent_path(), ignored), end; entry != end;
       entry.increment(ignored)) {
    beside.push_back(entry->path().filename().string());
    if (ignored || beside.size() > 10'000) break;
  }
  auto near = nearest_names(path.filename().string(), beside, 1);
  auto error = fail(Code::kNotFound, "no such file or directory").at_path(path.string());
  if (near.empty()) return error;
  return std::move(error).with_hint("did you mean '" + (path.parent_path() / near[0]).string() + "'?");
}

Error unknown_format(Store& store, const std::string& at, const std::string& path, bool directory) {
  if (auto keys = directory ? store.list("") : std::vector<std::string>{""}; keys.ok() && keys->empty())
    return fail(Code::kNotFound, "the directory holds no file")
        .at_path(path)
        .with_expected("model.safetensors, _METADATA (Orbax), manifest.ocdbt, .zgroup or another mark of a checkpoint")
        .with_hint("a step of a run that is empty was never written: `shardwright steps` says which are whole");
  if (directory)
    return fail(Code::kNotFound, "the directory holds no checkpoint that can be read")
        .at_path(path)
        .with_expected("model.safetensors, model.safetensors.index.json, _METADATA (Orbax), or a path to a file")
        .with_hint("name the file itself, e.g. " + (fs::path(path) / "x.weights.json").string() +
                   "; `shardwright formats` lists what can be read");
  Bytes first(64);
  auto size = store.size(at);
  first.resize(size.ok() && *size ? std::min<uint64_t>(first.size(), **size) : 0);
  ReadOp op{at, 0, first};
  auto read = store.read({&op, 1});
  if (!read.ok()) return std::move(read.error());
  auto what = first.empty() ? "an empty file" : describe_magic(text_of(first));
  auto error = fail(Code::kUnsupported, "not a checkpoint format that can be read").at_path(path);
  if (!what.empty()) error.found = what;
  error.expected = "a format listed by `shardwright formats`";
  if (what.find("LFS") != std::string::npos) error.hint = "fetch the file itself: `git lfs pull`";
  return error;
}

}  // namespace

Result<Checkpoint> open_checkpoint(const std::string& path, const OpenOptions& options,
                                   const FileStoreOptions& store_options) {
  std::error_code error;
  fs::path given(path);
  if (given.has_relative_path() && given.filename().empty()) given = given.parent_path();  // "dir/" is "dir"
  auto status = fs::status(given, error);
  bool directory = fs::is_directory(status);
  fs::path root = directory ? given : given.parent_path();
  if (root.empty()) root = ".";
  Checkpoint out;
  out.path = path;
  out.at = directory ? "" : given.filename().string();
  bool rooted = fs::is_directory(root, error);
  if (!rooted && !fs::exists(status)) return no_such_path(given);
  SHARDWRIGHT_ASSIGN(out.store, open_file_store(root.string(), store_options));
  SHARDWRIGHT_ASSIGN(auto recovered, out.store->recover(""));
  if (recovered) out.notes.push_back(*recovered);
  if (!directory) {
    SHARDWRIGHT_ASSIGN(auto size, out.store->size(out.at));
    if (!size && !fs::exists(fs::status(given, error))) return no_such_path(given);
    if (!size) return fail(Code::kUnsupported, "neither a file nor a directory").at_path(path);
  }
  out.format = sniff_format(*out.store, out.at);
  if (out.format == nullptr) return unknown_format(*out.store, out.at, path, directory);
  auto catalog = out.format->open(*out.store, out.at, options);
  if (!catalog.ok()) {
    if (catalog.error().path.empty()) catalog.error().path = path;
    return std::move(catalog.error());
  }
  out.catalog = std::move(*catalog);
  return out;
}

}  // namespace shardwright
