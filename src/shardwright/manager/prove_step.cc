// Is a directory a whole step.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "shardwright/engine/manifest.h"
#include "shardwright/format/format.h"
#include "shardwright/format/orbax_metadata.h"
#include "shardwright/manager/step_files.h"
#include "shardwright/manager/steps.h"
#include "shardwright/manager/tree_files.h"
#include "shardwright/store/directory.h"
#include "shardwright/store/ocdbt_format.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// What Keras calls the state of a model. Its configuration lies beside it, an item too.
constexpr std::string_view kKerasItem = "pytree";

StepProof broken(std::string text) { return {false, std::move(text), {}}; }

StepProof unknown(Error why) { return {false, "nobody can tell: " + why.text(), std::move(why)}; }

/// Whether an error says what is there; others say that it could not be looked at.
bool says_what_is_there(Code code) {
  return code == Code::kCorrupt || code == Code::kNotFound || code == Code::kUnsupported ||
         code == Code::kInvalidArgument;
}

StepProof judge(const std::string& text, Error why) {
  if (!says_what_is_there(why.code)) return unknown(std::move(why));
  return broken(text + why.text());
}

/// By the list of files in a manifest of ours; nullopt when there is none.
std::optional<StepProof> prove_by_manifest(const fs::path& directory) {
  auto read = read_step_manifest(directory.string());
  if (!read.ok()) return judge("its manifest cannot be read: ", read.error());
  if (!*read) return std::nullopt;
  for (const auto& [file, size] : (*read)->files) {
    std::error_code error;
    auto there = fs::file_size(directory / file, error);
    if (error && !detail::means_missing(error.value()))
      return unknown(errno_error(error.value(), "cannot look at", (directory / file).string()));
    if (error) return broken(fmt::format("'{}' is missing", file));
    if (there != size) return broken(fmt::format("'{}' has {} bytes, not {}", file, there, size));
  }
  return StepProof{true, fmt::format("all {} files of its manifest", (*read)->files.size()), {}};
}

bool is_item(const fs::path& path) { return is_there(path / kOrbaxTree) || is_there(path / kOcdbtManifest); }

/// Trees of arrays in it: itself, or items.
std::vector<fs::path> items_in(const fs::path& directory) {
  if (is_item(directory)) return {directory};
  std::vector<fs::path> items;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.is_directory(error) && is_item(entry.path())) items.push_back(entry.path());
  return items;
}

/// A format of single files has one name in a directory.
std::optional<std::string> checkpoint_in(const fs::path& directory) {
  for (const char* name : {"model.weights.json", "model.weights.h5"})
    if (is_there(directory / name)) return (directory / name).string();
  auto store = open_file_store(directory.string());
  if (!store.ok() || sniff_format(**store, "") == nullptr) return std::nullopt;
  return directory.string();
}

}  // namespace

Result<std::string> tensors_of_step(const std::string& path, const std::string& item) {
  fs::path directory(path);
  for (const std::string& name : {item, std::string(kKerasItem)})
    if (auto found = checkpoint_in(directory / name); found && is_there(directory / name)) return *found;
  if (is_there(directory / kOrbaxTree)) return path;
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.is_directory(error))
      if (auto one = checkpoint_in(entry.path())) found.push_back(*one);
  if (found.size() == 1) return found[0];
  if (found.empty()) return fail(Code::kNotFound, "there are no tensors in the step").at_path(path);
  return path;
}

Marks marks_of(const std::string& path) {
  fs::path directory(path);
  std::error_code error;
  if (!fs::is_directory(directory, error)) return Marks::kNone;
  if (is_there(directory / kManifestName) || is_there(directory / kOrbaxCommit)) return Marks::kFinished;
  auto facts = read_step_metadata(path);
  if (facts.ok() && facts->committed) return Marks::kFinished;
  if (is_there(directory / kOrbaxStep) || !items_in(directory).empty()) return Marks::kBegun;
  auto entries = detail::names_in(path);
  if (!entries.ok()) return Marks::kNone;
  if (entries->empty()) return Marks::kEmpty;
  bool temporary =
      std::ranges::any_of(*entries, [](const std::string& name) { return name.find(kTemporarySuffix) != name.npos; });
  return temporary ? Marks::kBegun : Marks::kNone;
}

StepProof prove_step(const std::string& path) { return detail::prove_step(path, detail::look_at_tree(path)); }

StepProof detail::prove_step(const std::string& path, const TreeFacts& tree) {
  fs::path directory(path);
  // First: what follows takes what it cannot look at for missing.
  if (tree.trouble) return unknown(*tree.trouble);
  if (auto proof = prove_by_manifest(directory)) return *proof;
  auto entries = detail::names_in(path);
  if (!entries.ok()) return unknown(entries.error());
  if (entries->empty()) return broken("it is empty");
  for (const auto& name : *entries)
    if (name.find(kTemporarySuffix) != name.npos) return broken(fmt::format("'{}' was never finished", name));
  auto facts = read_step_metadata(path);
  if (!facts.ok()) return judge("its metadata cannot be read: ", facts.error());
  bool marked = is_there(directory / kOrbaxCommit) || facts->committed;
  if (facts->present && !marked) return broken("it was never committed");
  auto items = items_in(directory);
  if (!marked && items.empty()) return broken("there is no checkpoint in it");
  for (const auto& item : items) {
    auto opened = open_checkpoint(item.string());
    if (!opened.ok()) return judge("", opened.error());
  }
  return {true,
          fmt::format("committed, and {} of it opened",
                      items.size() == 1 ? "the tree" : fmt::format("{} trees", items.size())),
          {}};
}

}  // namespace shardwright
