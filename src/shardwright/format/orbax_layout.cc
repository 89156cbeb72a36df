#include "shardwright/format/orbax_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "shardwright/base/text.h"
#include "shardwright/format/orbax_marks.h"
#include "shardwright/format/zarr_values.h"
#include "shardwright/store/ocdbt_format.h"

namespace shardwright {
namespace {

std::string_view first_part(std::string_view key) { return key.substr(0, key.find('/')); }
std::string_view last_part(std::string_view key) { return key.substr(key.rfind('/') + 1); }

/// Directories that hold one item each, by what lies in them.
std::map<std::string, OrbaxLayout::Item> items_in(const std::vector<std::string>& keys) {
  std::map<std::string, OrbaxLayout::Item> items;
  for (const auto& key : keys) {
    auto slash = key.find('/');
    if (slash == key.npos) continue;
    std::string name = key.substr(0, slash);
    if (name.starts_with(kOrbaxProcess)) continue;
    auto rest = std::string_view(key).substr(slash + 1);
    bool tree = rest == kOrbaxTree, ocdbt = rest == kOcdbtManifest;
    // An item of one array has neither: `checkpoint/.zarray`.
    bool arrays = is_zarr_metadata_key(rest) && std::count(rest.begin(), rest.end(), '/') == 1;
    if (!tree && !ocdbt && !arrays) continue;
    auto& item = items[name];
    item.name = name;
    item.directory = name + "/";
    item.tree = item.tree || tree;
    item.ocdbt = item.ocdbt || ocdbt;
  }
  return items;
}

/// The number at the end of a step's name: "100", "ckpt_000005".
std::optional<uint64_t> step_number(std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  uint64_t number = 0;
  auto [end, problem] = std::from_chars(name.data() + digits, name.data() + name.size(), number);
  bool plain = digits == 0 || name[digits - 1] == '_';
  if (digits == name.size() || problem != std::errc() || !plain) return std::nullopt;
  return number;
}

/// Names of directories that hold a step: its metadata, or a commit file and items.
std::map<uint64_t, std::string> steps_in(const std::vector<std::string>& keys) {
  std::map<uint64_t, std::string> steps;
  for (const auto& key : keys) {
    auto name = first_part(key);
    if (name.size() + 1 >= key.size() || name.find(kOrbaxTemporary) != name.npos) continue;
    auto rest = std::string_view(key).substr(name.size() + 1);
    bool mark = rest == kOrbaxStep || rest == kOrbaxTree ||
                (last_part(rest) == kOrbaxTree && first_part(rest).size() + 1 + kOrbaxTree.size() == rest.size());
    if (!mark) continue;
    if (auto number = step_number(name)) steps[*number] = std::string(name);
  }
  return steps;
}

/// What processes wrote each for itself, before one database was made of it.
bool has_process_databases(const std::vector<std::string>& keys) {
  return std::ranges::any_of(keys, [](const auto& key) { return key.starts_with(kOrbaxProcess); });
}

/// A broken step is no advice: the newest that opens is named.
Error directory_of_steps(Store& store, const std::map<uint64_t, std::string>& steps) {
  constexpr int kMostOpened = 16;
  auto error = fail(Code::kUnsupported, fmt::format("a directory of {} Orbax steps, not a checkpoint", steps.size()))
                   .at_path(store.describe(""));
  int opened = 0;
  for (auto step = steps.rbegin(); step != steps.rend() && opened < kMostOpened; ++step, ++opened) {
    std::string path = store.describe(step->second);
    auto below = open_file_store(path);
    if (below.ok() && kOrbax.open(**below, "", {}).ok())
      return std::move(error).with_hint("name a step: the newest that is whole is " + path);
  }
  return std::move(error).with_hint("name a step; the newest are not whole: `shardwright steps` says what they lack");
}

Status read_step(Store& store, const OpenOptions& options, OrbaxLayout& layout) {
  SHARDWRIGHT_ASSIGN(Bytes text, read_object(store, kOrbaxStep, options.max_metadata_bytes));
  auto step = parse_orbax_step(text_of(text));
  if (!step.ok()) return std::move(step.error()).at_path(store.describe(kOrbaxStep));
  layout.step = std::move(*step);
  if (!layout.step.committed && !has_object(store, kOrbaxCommit)) return unfinished_orbax(store);
  return {};
}

/// Items in directories of their own, and what is none's.
Status take_items(Store& store, const std::vector<std::string>& keys, OrbaxLayout& layout) {
  std::set<std::string_view> directories;
  for (const auto& key : keys)
    if (key.find('/') != key.npos) directories.insert(first_part(key));
  for (auto name : directories) SHARDWRIGHT_TRY(has_mark(store, fmt::format("{}/{}", name, kOrbaxTree)));
  auto items = items_in(keys);
  if (items.empty() && has_process_databases(keys))
    return fail(Code::kNotFound, "the database of the checkpoint is missing")
        .at_path(store.describe(kOcdbtManifest))
        .with_hint(std::string(kMergeHint));
  if (items.empty() && std::ranges::any_of(keys, [](const auto& key) { return is_zarr_metadata_key(key); })) {
    layout.items.push_back({"", "", false, false});  // arrays without a tree, at the root
    return {};
  }
  for (auto& [name, item] : items) layout.items.push_back(item);
  for (const auto& key : keys) {
    bool ours =
        key.find('/') == key.npos || last_part(key) == kOrbaxCommit || items.contains(std::string(first_part(key)));
    if (!ours) layout.others.push_back(key);
  }
  if (layout.items.empty())
    return fail(Code::kNotFound, "an Orbax checkpoint without arrays")
        .at_path(store.describe(""))
        .with_expected(fmt::format("{} or {}, here or in the directory of an item", kOcdbtManifest, kOrbaxTree));
  return {};
}

}  // namespace

Confidence sniff_orbax(Store& store, std::string_view at) {
  if (!at.empty()) return Confidence::kNo;
  for (auto mark : {kOrbaxTree, kOrbaxStep, kOrbaxVersion1})
    if (has_mark_of_any_kind(store, mark)) return Confidence::kCertain;
  if (has_object(store, kOcdbtManifest)) return Confidence::kNo;  // zarr
  auto keys = store.list("");
  if (!keys.ok()) return Confidence::kNo;
  if (!steps_in(*keys).empty() || has_process_databases(*keys)) return Confidence::kName;
  for (const auto& [name, item] : items_in(*keys))
    if (item.tree || item.ocdbt) return Confidence::kName;
  return Confidence::kNo;
}

Result<OrbaxLayout> find_orbax_layout(Store& store, const OpenOptions& options) {
  OrbaxLayout layout;
  SHARDWRIGHT_TRY(refuse_unfinished_orbax(store));
  SHARDWRIGHT_ASSIGN(layout.has_step, has_mark(store, kOrbaxStep));
  if (layout.has_step) SHARDWRIGHT_TRY(read_step(store, options, layout));
  OrbaxLayout::Item whole;
  SHARDWRIGHT_ASSIGN(whole.ocdbt, has_mark(store, kOcdbtManifest));
  SHARDWRIGHT_ASSIGN(whole.tree, has_mark(store, kOrbaxTree));
  if (whole.ocdbt || whole.tree) {
    layout.items.push_back(std::move(whole));
    return layout;
  }
  SHARDWRIGHT_ASSIGN(auto keys, store.list(""));
  for (const auto& key : keys)
    if (first_part(key).find(kOrbaxTemporary) != std::string_view::npos && layout.has_step)
      return unfinished_orbax(store);
  if (!layout.has_step)
    if (auto steps = steps_in(keys); !steps.empty()) return directory_of_steps(store, steps);
  SHARDWRIGHT_TRY(take_items(store, keys, layout));
  return layout;
}

namespace {

/// What Orbax writes: by the name of the file, or the directory that it is in. arrays: directories of zarr arrays, with '/'.
bool is_member(std::string_view key, const std::set<std::string, std::less<>>& arrays) {
  constexpr std::string_view kDirectories[] = {"d/", "array_metadatas/", "ocdbt_data/", "ocdbt_meta/"};
  if (is_orbax_file(last_part(key)) || last_part(key) == kOcdbtManifest) return true;
  if (key.starts_with(kOrbaxProcess) || key.find("/" + std::string(kOrbaxProcess)) != key.npos) return true;
  for (auto directory : kDirectories)
    if (key.starts_with(directory) || key.find("/" + std::string(directory)) != key.npos) return true;
  for (size_t slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1))
    if (arrays.contains(key.substr(0, slash + 1))) return true;
  return last_part(key).starts_with("manifest.") && last_part(key).size() == 25;
}

}  // namespace

std::vector<std::string> orbax_members(Store& store, std::string_view) {
  auto keys = store.list("");
  if (!keys.ok()) return {};
  std::set<std::string, std::less<>> arrays;
  for (const auto& key : *keys)
    if (is_zarr_metadata_key(key)) arrays.insert(key.substr(0, key.rfind('/') + 1));
  std::vector<std::string> out;
  for (auto& key : *keys)
    if (is_member(key, arrays)) out.push_back(std::move(key));
  // By which its readers begin.
  for (auto entry : {kOcdbtManifest, kOrbaxTree, kOrbaxStep})
    if (auto found = std::find(out.begin(), out.end(), entry); found != out.end())
      std::rotate(out.begin(), found, found + 1);
  return out;
}

}  // namespace shardwright
