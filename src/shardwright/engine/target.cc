#include "shardwright/engine/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;

/// What the name of a target says. `sharded`: cut at 5GB unless told otherwise.
struct NameRule {
  std::string_view ending, format, default_name;
  bool sharded;
};
constexpr NameRule kNameRules[] = {
    {".safetensors.index.json", "safetensors", "", true},
    {".safetensors", "safetensors", "", false},
    {".weights.json", "keras-sharded", "model.weights.json", true},
    {".weights.h5", "keras-h5", "model.weights.h5", false},
    {".keras", "keras", "model.keras", false},
    {".bin.index.json", "torch", "", true},
    {".bin", "torch", "", false},
    {".pt", "torch", "", false},
    {".pth", "torch", "", false},
};

const NameRule* rule_of(std::string_view name) {
  for (const auto& rule : kNameRules)
    if (name.ends_with(rule.ending)) return &rule;
  return nullptr;
}

/// The first one of a format; nullptr for one that is always a directory of its own.
const NameRule* rule_of_format(std::string_view format) {
  auto rule = std::ranges::find(kNameRules, format, &NameRule::format);
  return rule == std::end(kNameRules) ? nullptr : rule;
}

Result<const Format*> writable_format(const std::string& name) {
  const Format* format = find_format(name);
  if (format == nullptr) {
    std::vector<std::string> names;
    for (const Format* row : format_table()) names.emplace_back(row->name);
    auto near = nearest_names(name, names, 1);
    return fail(Code::kInvalidArgument, "unknown format '" + name + "'")
        .with_hint(near.empty() ? "`shardwright formats` lists them" : "did you mean '" + near[0] + "'?");
  }
  if (format->draft == nullptr)
    return fail(Code::kUnsupported, "format '" + name + "' can only be read")
        .with_hint("`shardwright formats` says what can be written");
  return format;
}

/// Names of files that are written under another name, or not at all: nobody wants a directory called so.
constexpr std::string_view kForeignEndings[] = {".h5",  ".hdf5", ".json", ".ckpt",       ".gguf", ".npz",
                                                ".npy", ".pkl",  ".zip",  ".safetensor", ".onnx"};

Status check_name(std::string file) {
  std::ranges::transform(file, file.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  auto foreign = std::ranges::find_if(kForeignEndings, [&](std::string_view ending) { return file.ends_with(ending); });
  if (rule_of(file) == nullptr && foreign == std::end(kForeignEndings)) return {};
  std::vector<std::string> endings;
  for (const auto& rule : kNameRules) endings.emplace_back(rule.ending);
  return fail(Code::kInvalidArgument, "this name is of no file that can be written")
      .with_expected(fmt::format("{}, or a directory", fmt::join(endings, ", ")))
      .with_hint("for a directory of safetensors with such a name, end it in /, or say --to safetensors");
}

bool inside(const fs::path& inner, const fs::path& outer) {
  auto at = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return at.first == outer.end() && at.second != inner.end();
}

/// What a reader of the directory, or of a name that copies give a file in it, may find there: one set a format.
std::vector<std::string> places_in(const Target& target) {
  if (!target.is_directory) return {target.name};
  std::vector<std::string> places = {""};
  for (const auto& rule : kNameRules)
    if (!rule.default_name.empty()) places.emplace_back(rule.default_name);
  return places;
}

/// Whose set stands at a place; nullptr: nobody's.
const Format* format_at(const Target& target, const CopyRequest& request, Store& store, const std::string& place) {
  if (!place.empty()) {
    auto size = store.size(place);
    if (!size.ok() || !*size) return nullptr;
  }
  if (!request.replaces.empty()) return target.format;
  const Format* format = sniff_format(store, place);
  return format == nullptr && !place.empty() && place == target.name ? target.format : format;
}

/// The sets at the target now, entry points first.
void find_old_sets(Target& target, const CopyRequest& request, Store& store) {
  std::vector<std::string> entries, others;
  auto add = [&](std::vector<std::string>& to, const std::string& member) {
    if (std::ranges::find(entries, member) == entries.end() && std::ranges::find(others, member) == others.end())
      to.push_back(member);
  };
  for (const auto& place : request.replaces.empty() ? places_in(target) : request.replaces) {
    const Format* format = format_at(target, request, store, place);
    if (format == nullptr) continue;
    target.exists = true;
    auto members = format->members(store, place);
    for (size_t i = 0; i < members.size(); ++i) {
      // A directory may hold an index and a single file; either may be where some reader begins.
      bool entry = i == 0 || (entries.size() == i && members[i].ends_with(".index.json"));
      add(entry ? entries : others, members[i]);
    }
  }
  target.old_entries = entries.size();
  target.old_members = std::move(entries);
  target.old_members.insert(target.old_members.end(), others.begin(), others.end());
}

/// What stands at the target now, and whether it is the source's own.
void look_at_old_sets(Target& target, const CopyRequest& request, const Checkpoint& source, const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) return;
  auto store = open_file_store(directory.string());
  if (!store.ok()) return;
  find_old_sets(target, request, **store);
  if (!target.exists || source.format == nullptr) return;  // memory is never the target
  // The same set, both ways: one shard of it, or a file that two sets share by a link, is not the source itself.
  auto own = source.format->members(*source.store, source.at);
  auto is_own = [&](const std::string& member) {
    return std::ranges::any_of(own, [&](const std::string& key) {
      return fs::equivalent(directory / member, source.store->describe(key), error);
    });
  };
  target.own_source =
      !own.empty() && own.size() == target.old_members.size() && std::ranges::all_of(target.old_members, is_own);
}

/// Format, name and shards, by the name of the target and what was asked for.
Result<Target> target_of_name(const CopyRequest& request, const fs::path& path, bool says_directory) {
  Target target;
  std::error_code error;
  std::string file = path.filename().string();
  const bool there = fs::is_directory(path, error);
  const NameRule* named = there ? nullptr : rule_of(file);
  std::string format = !request.format.empty() ? request.format
                       : named != nullptr      ? std::string(named->format)
                                               : "safetensors";
  if (named == nullptr && request.format.empty() && !says_directory && !there)
    if (auto status = check_name(file); !status.ok()) return std::move(status.error()).at_path(request.target);
  SHARDWRIGHT_ASSIGN(target.format, writable_format(format));
  if (named != nullptr && named->format != format)
    return fail(Code::kInvalidArgument, fmt::format("'{}' is not a name for format {}", file, format))
        .with_hint(fmt::format("leave --to out, or give a name that does not end in {}", named->ending));
  bool sharded = named == nullptr || named->sharded;
  target.is_directory = named == nullptr;
  if (named == nullptr && format != "safetensors") {
    const NameRule* rule = rule_of_format(format);
    target.name = default_name(format);
    sharded = rule == nullptr || rule->sharded;
  } else if (named != nullptr) {
    target.name = file;
  }
  if (!sharded && request.max_shard_bytes)
    return fail(Code::kInvalidArgument, "a single file has no shards")
        .at_path(request.target)
        .with_hint("give a directory, or an index name such as x.weights.json, with --max-shard-size");
  if (request.max_shard_bytes == 0)
    return fail(Code::kInvalidArgument, "shards of no bytes cannot hold anything")
        .with_found("0 bytes")
        .with_hint("leave --max-shard-size out for shards of 5GB");
  target.max_shard_bytes = request.max_shard_bytes.value_or(sharded ? kDefaultShardBytes : kUnknown);
  return target;
}

/// That a target can stand at `absolute`, whatever stands there now.
Status check_surroundings(const CopyRequest& request, const Checkpoint& source, const Target& target,
                          const fs::path& absolute) {
  std::error_code error;
  if (!fs::is_directory(absolute.parent_path(), error))
    return fail(Code::kNotFound, "the directory to write into does not exist")
        .at_path(absolute.parent_path().string())
        .with_hint("create it first");
  if (!target.is_directory) return {};
  if (fs::exists(absolute, error) && !fs::is_directory(absolute, error))
    return fail(Code::kAlreadyExists, "a file stands where a directory is to be written").at_path(request.target);
  if (source.format != nullptr && source.at.empty() &&
      inside(fs::weakly_canonical(absolute, error), fs::weakly_canonical(source.path, error)))
    return fail(Code::kInvalidArgument, "the target lies inside the source")
        .at_path(request.target)
        .with_hint("choose a directory beside it");
  return {};
}

}  // namespace

std::string_view default_name(std::string_view format) {
  const NameRule* rule = rule_of_format(format);
  return rule == nullptr ? "" : rule->default_name;
}

std::string Target::store_key(std::string_view key) const {
  return directory.empty() ? std::string(key) : directory + "/" + std::string(key);
}

Result<Target> resolve_target(const CopyRequest& request, const Checkpoint& source) {
  fs::path path(request.target);
  bool says_directory = path.filename().empty();
  if (path.has_relative_path() && says_directory) path = path.parent_path();
  SHARDWRIGHT_ASSIGN(Target target, target_of_name(request, path, says_directory));
  std::error_code error;
  fs::path absolute = fs::absolute(path, error).lexically_normal();
  fs::path parent = absolute.parent_path();
  SHARDWRIGHT_TRY(check_surroundings(request, source, target, absolute));
  target.directory = target.is_directory ? absolute.filename().string() : "";
  SHARDWRIGHT_ASSIGN(target.store, open_file_store(parent.string()));
  SHARDWRIGHT_ASSIGN(target.recovered, target.store->recover(target.directory));
  look_at_old_sets(target, request, source, target.is_directory ? absolute : parent);
  if (target.exists && !target.own_source && !request.overwrite)
    return fail(Code::kAlreadyExists, "a checkpoint is there already")
        .at_path(request.target)
        .with_hint("--overwrite replaces it");
  return target;
}

}  // namespace shardwright
