#include "shardwright/store/ocdbt.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

/// At most 65,536 versions of some 100 bytes, and the files they lie in.
constexpr uint64_t kMaxManifest = 64 * MiB;

/// "manifest." and the generation as 16 lowercase hex digits.
bool is_numbered(std::string_view name) {
  constexpr std::string_view kStart = "manifest.";
  return name.starts_with(kStart) && name.size() == kStart.size() + 16 &&
         name.find_first_not_of("0123456789abcdef", kStart.size()) == name.npos;
}

}  // namespace

Result<std::unique_ptr<OcdbtDatabase>> OcdbtDatabase::open(Store& base, std::string_view directory,
                                                           const OcdbtOptions& options) {
  std::unique_ptr<OcdbtDatabase> database(new OcdbtDatabase(base, directory, options));
  SHARDWRIGHT_TRY(database->read_manifest());
  SHARDWRIGHT_TRY(database->choose_version());
  return database;
}

Status OcdbtDatabase::read_manifest() {
  manifest_key_ = directory_ + std::string(kOcdbtManifest);
  auto parse = [&]() -> Result<OcdbtManifest> {
    SHARDWRIGHT_ASSIGN(Bytes bytes, read_object(base_, manifest_key_, options_.max_metadata_bytes));
    auto manifest = parse_ocdbt_manifest(bytes, std::min(options_.max_metadata_bytes, kMaxManifest));
    if (!manifest.ok()) return std::move(manifest.error()).at_path(base_.describe(manifest_key_));
    return manifest;
  };
  SHARDWRIGHT_ASSIGN(manifest_, parse());
  if (!manifest_.config.numbered) return {};
  OcdbtConfig config = manifest_.config;
  SHARDWRIGHT_ASSIGN(auto keys, base_.list(directory_));
  std::string newest;
  for (const auto& key : keys)
    if (is_numbered(std::string_view(key).substr(directory_.size()))) newest = std::max(newest, key);
  if (newest.empty()) return {};  // nothing was ever committed
  manifest_key_ = newest;
  SHARDWRIGHT_ASSIGN(manifest_, parse());
  config.numbered = false;
  if (manifest_.config != config)
    return fail(Code::kCorrupt, "OCDBT: the newest manifest has another configuration than the database")
        .at_path(base_.describe(manifest_key_));
  return {};
}

Status OcdbtDatabase::choose_version() {
  if (manifest_.versions.empty()) return {};
  auto take = [&](const OcdbtVersion& version, const OcdbtFile* file) {
    version_ = version;
    if (file != nullptr) root_file_ = *file;
  };
  auto in_manifest = [&](const OcdbtVersion& version) {
    take(version, version.root ? &manifest_.files[version.root->file] : nullptr);
  };
  if (!options_.generation) {
    in_manifest(manifest_.versions.back());
    return {};
  }
  for (const auto& version : manifest_.versions)
    if (version.generation == *options_.generation) {
      in_manifest(version);
      return {};
    }
  std::optional<std::pair<OcdbtVersion, OcdbtFile>> wanted;
  for (const auto& branch : manifest_.branches) {
    if (branch.generation < *options_.generation) continue;
    SHARDWRIGHT_TRY(add_versions(branch, manifest_.files, nullptr, &wanted));
    break;
  }
  if (!wanted)
    return fail(Code::kNotFound, "the database has no such generation")
        .at_path(base_.describe(manifest_key_))
        .with_found(std::to_string(*options_.generation))
        .with_expected(fmt::format("at most {}", manifest_.versions.back().generation));
  take(wanted->first, &wanted->second);
  return {};
}

/// Appends what lies beneath a branch to `all`, or finds the wanted generation.
Status OcdbtDatabase::add_versions(const OcdbtVersionBranch& branch, const OcdbtFiles& files,
                                   std::vector<OcdbtVersion>* all,
                                   std::optional<std::pair<OcdbtVersion, OcdbtFile>>* wanted) const {
  Place place{files[branch.node.file], branch.node};
  SHARDWRIGHT_ASSIGN(Bytes bytes, read_range(place));
  auto node = parse_ocdbt_version_node(bytes, place.file.base, node_limit());
  if (!node.ok()) return at(place, std::move(node.error()));
  auto wrong = [&](const char* what) {
    return at(place, fail(Code::kCorrupt, std::string("OCDBT version node: ") + what));
  };
  if (node->height != branch.height) return wrong("its height is not what refers to it");
  if (node->arity_log2 != manifest_.config.arity_log2) return wrong("its arity is not that of the database");
  uint64_t last = node->height == 0 ? node->versions.back().generation : node->branches.back().generation;
  if (last != branch.generation) return wrong("its last generation is not the one that refers to it");
  for (const auto& version : node->versions) {
    // A node that is referred to twice would make the tree as large as one likes.
    if (all != nullptr && !all->empty() && version.generation <= all->back().generation)
      return wrong("generations do not grow");
    if (all != nullptr) all->push_back(version);
    if (wanted != nullptr && version.generation == *options_.generation)
      *wanted = {version, version.root ? node->files[version.root->file] : OcdbtFile{}};
  }
  for (const auto& child : node->branches) {
    if (wanted != nullptr && child.generation < *options_.generation) continue;
    SHARDWRIGHT_TRY(add_versions(child, node->files, all, wanted));
    if (wanted != nullptr) break;
  }
  return {};
}

Result<std::vector<OcdbtVersion>> OcdbtDatabase::versions() const {
  std::vector<OcdbtVersion> all;
  for (const auto& branch : manifest_.branches) SHARDWRIGHT_TRY(add_versions(branch, manifest_.files, &all, nullptr));
  all.insert(all.end(), manifest_.versions.begin(), manifest_.versions.end());
  return all;
}

Result<std::string> OcdbtDatabase::key_of(const OcdbtFile& file) const {
  std::string path = file.path();
  if (is_safe_relative_path(path)) return directory_ + path;
  return fail(Code::kCorrupt, "OCDBT: a file is named that is not within the database")
      .at_path(base_.describe(manifest_key_))
      .with_found(json_quote(path));
}

Error OcdbtDatabase::at(const Place& place, Error error) const {
  return std::move(error).at_path(base_.describe(directory_ + place.file.path())).at_offset(place.range.offset);
}

Result<Bytes> OcdbtDatabase::read_range(const Place& place) const {
  SHARDWRIGHT_ASSIGN(auto key, key_of(place.file));
  SHARDWRIGHT_ASSIGN(auto size, base_.size(key));
  if (!size) return at(place, fail(Code::kNotFound, "a data file of the OCDBT database is missing"));
  // Before anything is allocated: no more is read than there is.
  if (place.range.offset > *size || place.range.length > *size - place.range.offset)
    return at(place, fail(Code::kCorrupt, "a data file of the OCDBT database is shorter than what it should hold"))
        .with_found(fmt::format("{} bytes", *size))
        .with_expected(fmt::format("{} bytes at {}", place.range.length, place.range.offset));
  if (place.range.length > options_.max_metadata_bytes)
    return at(place, fail(Code::kResourceExhausted, "OCDBT node is larger than anything expected here"))
        .with_found(format_bytes(place.range.length));
  Bytes bytes(place.range.length);
  ReadOp op{key, place.range.offset, bytes};
  SHARDWRIGHT_TRY(base_.read({&op, 1}));
  return bytes;
}

uint64_t OcdbtDatabase::node_limit() const {
  // Keys, entries and ranges take up to four times what TensorStore reckons for them.
  constexpr uint64_t kAlways = 128 * MiB;
  return std::min(options_.max_metadata_bytes,
                  std::max(kAlways, checked_mul(4, manifest_.config.max_node_bytes).value_or(kUnknown)));
}

Result<std::shared_ptr<const OcdbtNode>> OcdbtDatabase::read_node(const Step& step, uint64_t held) const {
  SHARDWRIGHT_ASSIGN(Bytes bytes, read_range(step.place));
  uint64_t left = options_.max_metadata_bytes - std::min(held, options_.max_metadata_bytes);
  auto node = parse_ocdbt_node(bytes, step.place.file.base, std::min(left, node_limit()));
  if (!node.ok()) return at(step.place, std::move(node.error()));
  auto wrong = [&](const char* what) {
    return at(step.place, fail(Code::kCorrupt, std::string("OCDBT node: ") + what));
  };
  if (node->height() != step.height) return wrong("its height is not what refers to it");
  if (node->key(node->entries().front()) < step.least)
    return wrong("its first key is before the one that refers to it");
  if (step.prefix.size() + node->key(node->entries().back()).size() > kOcdbtMaxKey) return wrong("a key is too long");
  return std::make_shared<const OcdbtNode>(std::move(*node));
}

Result<std::shared_ptr<const OcdbtNode>> OcdbtDatabase::cached_node(const Step& step) const {
  CacheKey key{step.place.file.path(), step.place.range.offset};
  {
    std::lock_guard lock(mutex_);
    if (auto hit = cache_.find(key); hit != cache_.end()) {
      recent_.splice(recent_.begin(), recent_, hit->second);
      return hit->second->node;
    }
  }
  SHARDWRIGHT_ASSIGN(auto node, read_node(step));
  std::lock_guard lock(mutex_);
  if (!cache_.contains(key)) {
    recent_.push_front({key, node});
    cache_.emplace(key, recent_.begin());
    cached_bytes_ += node->memory_bytes();
    while (cached_bytes_ > options_.cache_bytes && recent_.size() > 1) {
      cached_bytes_ -= recent_.back().node->memory_bytes();
      cache_.erase(recent_.back().key);
      recent_.pop_back();
    }
  }
  return node;
}

OcdbtDatabase::Step OcdbtDatabase::child_of(const Step& parent, const OcdbtNode& node, const OcdbtNode::Entry& entry) {
  std::string_view key = node.key(entry);
  return {{node.files()[entry.range.file], entry.range},
          static_cast<uint8_t>(parent.height - 1),
          parent.prefix + std::string(key.substr(0, entry.shared_bytes)),
          std::string(key.substr(entry.shared_bytes))};
}

std::optional<OcdbtDatabase::Step> OcdbtDatabase::root() const {
  if (!version_.root) return std::nullopt;
  return Step{{root_file_, *version_.root}, version_.height, "", ""};
}

/// Depth first; a tree is at most as high as its versions may say (64), each level one step of recursion. A node that is referred to twice
/// would make a tree as large as one likes, so `seen` keeps their places.
Status OcdbtDatabase::walk(const Step& step, uint64_t held, std::set<std::pair<std::string, uint64_t>>& seen,
                           const std::function<Status(const Step&, const OcdbtNode&)>& visit) const {
  if (!seen.emplace(step.place.file.path(), step.place.range.offset).second)
    return at(step.place, fail(Code::kCorrupt, "OCDBT node: it is referred to twice"));
  SHARDWRIGHT_ASSIGN(auto node, read_node(step, held));
  SHARDWRIGHT_TRY(visit(step, *node));
  if (step.height == 0) return {};
  held += node->memory_bytes();
  for (const auto& entry : node->entries()) SHARDWRIGHT_TRY(walk(child_of(step, *node, entry), held, seen, visit));
  return {};
}

Status OcdbtDatabase::for_each_node(const std::function<Status(const NodeVisit&)>& visit) const {
  auto top = root();
  if (!top) return {};
  std::set<std::pair<std::string, uint64_t>> seen;
  return walk(*top, 0, seen, [&](const Step& step, const OcdbtNode& node) -> Status {
    SHARDWRIGHT_ASSIGN(auto file, key_of(step.place.file));
    return visit({file, step.prefix, step.place.range, node});
  });
}

Status OcdbtDatabase::for_each(const std::function<Status(const OcdbtValue&)>& visit) const {
  auto top = root();
  if (!top) return {};
  std::string key, before;
  bool any = false;
  std::set<std::pair<std::string, uint64_t>> seen;
  return walk(*top, 0, seen, [&](const Step& step, const OcdbtNode& node) -> Status {
    if (step.height > 0) return {};
    std::vector<std::string> files;
    for (const auto& file : node.files()) {
      // An empty table entry stands for no file at all.
      auto name = file.path().empty() ? Result<std::string>(std::string()) : key_of(file);
      if (!name.ok()) return std::move(name.error());
      files.push_back(std::move(*name));
    }
    for (const auto& entry : node.entries()) {
      key = step.prefix;
      key += node.key(entry);
      if (any && key <= before)
        return at(step.place, fail(Code::kCorrupt, "OCDBT node: keys of two nodes are not in order"));
      any = true;
      OcdbtValue value{key, entry.is_inline, {}, {}, entry.range.offset, entry.range.length};
      if (entry.is_inline) {
        value.inline_value = node.inline_value(entry);
      } else {
        value.file = files[entry.range.file];
        if (value.file.empty()) return at(step.place, fail(Code::kCorrupt, "OCDBT node: a value lies in no file"));
      }
      SHARDWRIGHT_TRY(visit(value));
      std::swap(before, key);
    }
    return {};
  });
}

Result<std::optional<OcdbtDatabase::Found>> OcdbtDatabase::find(std::string_view key) const {
  auto step = root();
  if (!step) return std::optional<Found>();
  struct Holder {
    std::shared_ptr<const OcdbtNode> node;
    std::string key, file;
  };
  while (true) {
    if (!key.starts_with(step->prefix)) return std::optional<Found>();
    std::string_view rest = key.substr(step->prefix.size());
    SHARDWRIGHT_ASSIGN(auto node, cached_node(*step));
    const auto& entries = node->entries();
    auto after =
        std::upper_bound(entries.begin(), entries.end(), rest,
                         [&](std::string_view wanted, const auto& entry) { return wanted < node->key(entry); });
    if (after == entries.begin()) return std::optional<Found>();
    const auto& entry = *(after - 1);
    if (step->height > 0) {
      step = child_of(*step, *node, entry);
      continue;
    }
    if (node->key(entry) != rest) return std::optional<Found>();
    auto holder = std::make_shared<Holder>(Holder{node, std::string(key), ""});
    OcdbtValue value{holder->key, entry.is_inline, {}, {}, entry.range.offset, entry.range.length};
    if (entry.is_inline) {
      value.inline_value = node->inline_value(entry);
    } else {
      SHARDWRIGHT_ASSIGN(holder->file, key_of(node->files()[entry.range.file]));
      value.file = holder->file;
    }
    return std::optional<Found>(Found{value, holder});
  }
}

}  // namespace shardwright
