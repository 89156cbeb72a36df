// Is a directory a whole step.
#include <fmt/format.h>

#include <filesystem>

#include "shardwright/engine/manifest.h"
#include "shardwright/format/format.h"
#include "shardwright/format/orbax_metadata.h"
#include "shardwright/manager/step_files.h"
#include "shardwright/manager/steps.h"
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

StepProof broken(std::string text) { return {false, std::move(text)}; }

/// By the list of files in a manifest of ours; nullopt when there is none.
std::optional<StepProof> prove_by_manifest(const fs::path& directory) {
  auto read = read_step_manifest(directory.string());
  if (!read.ok()) return broken("its manifest cannot be read: " + read.error().text());
  if (!*read) return std::nullopt;
  for (const auto& [file, size] : (*read)->files) {
    std::error_code error;
    auto there = fs::file_size(directory / file, error);
    if (error) return broken(fmt::format("'{}' is missing", file));
    if (there != size) return broken(fmt::format("'{}' has {} bytes, not {}", file, there, size));
  }
  return StepProof{true, fmt::format("all {} files of its manifest", (*read)->files.size())};
}

/// Trees of arrays in it: itself, or items.
std::vector<fs::path> items_in(const fs::path& directory) {
  auto is_item = [](const fs::path& path) { return is_there(path / kOrbaxTree) || is_there(path / kOcdbtManifest); };
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

StepProof prove_step(const std::string& path) {
  fs::path directory(path);
  if (auto proof = prove_by_manifest(directory)) return *proof;
  std::error_code error;
  bool empty = true;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    empty = false;
    auto name = entry.path().filename().string();
    if (name.find(kTemporarySuffix) != name.npos) return broken(fmt::format("'{}' was never finished", name));
  }
  if (error) return broken("it cannot be read");
  if (empty) return broken("it is empty");
  auto facts = read_step_metadata(path);
  if (!facts.ok()) return broken("its metadata cannot be read: " + facts.error().text());
  bool marked = is_there(directory / kOrbaxCommit) || facts->committed;
  if (facts->present && !marked) return broken("it was never committed");
  auto items = items_in(directory);
  if (!marked && items.empty()) return broken("there is no checkpoint in it");
  for (const auto& item : items) {
    auto opened = open_checkpoint(item.string());
    if (!opened.ok()) return broken(opened.error().text());
  }
  return {true, fmt::format("committed, and {} of it opened",
                            items.size() == 1 ? "the tree" : fmt::format("{} trees", items.size()))};
}

}  // namespace shardwright
