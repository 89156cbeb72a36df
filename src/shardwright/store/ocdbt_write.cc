#include "shardwright/store/ocdbt_write.h"

#include <algorithm>

#include "shardwright/base/text.h"
#include "shardwright/store/ocdbt_frame.h"

namespace shardwright {

using detail::append_varint;

namespace {

/// TensorStore's estimate of what an entry takes once decoded, beside key, inline value and path.
constexpr uint64_t kEntryBytes = 16;
/// More than any reader takes.
constexpr size_t kMostEntries = 1 << 20;

size_t shared_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

void append_text(Bytes& out, std::string_view text) {
  View bytes = view_of(text);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_files(Bytes& out, const OcdbtFiles& files) {
  append_varint(out, files.size());
  std::vector<size_t> prefix(files.size());
  for (size_t i = 1; i < files.size(); ++i) {
    const auto &before = files[i - 1], &now = files[i];
    prefix[i] = before.base == now.base ? now.base.size() + shared_prefix(before.relative, now.relative)
                                        : shared_prefix(before.base, now.base);
    append_varint(out, prefix[i]);
  }
  for (size_t i = 0; i < files.size(); ++i) append_varint(out, files[i].path().size() - prefix[i]);
  for (const auto& file : files) append_varint(out, file.base.size());
  for (size_t i = 0; i < files.size(); ++i) append_text(out, files[i].path().substr(prefix[i]));
}

bool before(const OcdbtFile& a, const OcdbtFile& b) {
  return std::pair(std::string_view(a.base), std::string_view(a.relative)) <
         std::pair(std::string_view(b.base), std::string_view(b.relative));
}

size_t index_of(const OcdbtFiles& files, const OcdbtFile& file) {
  return static_cast<size_t>(std::lower_bound(files.begin(), files.end(), file, before) - files.begin());
}

}  // namespace

OcdbtTreeBuilder::OcdbtTreeBuilder(OcdbtConfig config, OcdbtFile node_file, uint64_t node_offset)
    : config_(config), node_file_(std::move(node_file)), node_offset_(node_offset), levels_(1) {}

Status OcdbtTreeBuilder::add(std::string_view key, View value) {
  if (value.size() > kOcdbtMaxInline)
    return fail(Code::kInvalidArgument, "value is too long to lie in an OCDBT node")
        .with_found(format_bytes(value.size()));
  Entry entry{std::string(key), std::string(text_of(value)), true};
  entry.statistics.keys = 1;
  return put(0, std::move(entry));
}

Status OcdbtTreeBuilder::add(std::string_view key, const OcdbtFile& file, uint64_t offset, uint64_t length) {
  Entry entry{std::string(key), "", false, file, offset, length, {1, 0, length}};
  return put(0, std::move(entry));
}

Status OcdbtTreeBuilder::put(size_t level, Entry entry) {
  if (level == 0) {
    if (entry.key.size() > kOcdbtMaxKey)
      return fail(Code::kUnsupported, "name is too long for a key of OCDBT")
          .with_found(std::to_string(entry.key.size()) + " bytes");
    if (any_ && entry.key <= last_key_) return fail(Code::kInvalidArgument, "keys of an OCDBT tree must come in order");
    last_key_ = entry.key;
    any_ = true;
  }
  if (level == levels_.size()) levels_.emplace_back();
  uint64_t bytes =
      kEntryBytes + entry.key.size() + (entry.is_inline ? entry.value.size() : 16 + entry.file.path().size());
  bool full = levels_[level].bytes + bytes > config_.max_node_bytes || levels_[level].open.size() >= kMostEntries;
  // A node of one entry above another makes a tree that never ends.
  if (full && levels_[level].open.size() >= (level == 0 ? 1 : 2)) SHARDWRIGHT_TRY(cut(level, false));
  levels_[level].bytes += bytes;
  levels_[level].open.push_back(std::move(entry));
  return {};
}

/// What each key has more than the one before it; of an interior node also what all keys below each child share.
void OcdbtTreeBuilder::append_keys(Bytes& out, size_t level, size_t skip) const {
  const auto& entries = levels_[level].open;
  std::vector<size_t> prefix(entries.size());
  auto relative = [&](size_t i) { return std::string_view(entries[i].key).substr(skip); };
  for (size_t i = 1; i < entries.size(); ++i)
    append_varint(out, prefix[i] = shared_prefix(relative(i - 1), relative(i)));
  for (size_t i = 0; i < entries.size(); ++i) append_varint(out, relative(i).size() - prefix[i]);
  if (level > 0)
    for (const auto& entry : entries) append_varint(out, entry.shared - skip);
  for (size_t i = 0; i < entries.size(); ++i) append_text(out, relative(i).substr(prefix[i]));
}

/// Columns of what lies below each child.
static void append_children(Bytes& out, const auto& entries) {
  for (const auto& entry : entries) append_varint(out, entry.length);
  for (const auto& entry : entries) append_varint(out, entry.statistics.keys);
  for (const auto& entry : entries) append_varint(out, entry.statistics.tree_bytes);
  for (const auto& entry : entries) append_varint(out, entry.statistics.indirect_bytes);
}

/// Columns of one node; `skip` bytes of every key are left out.
Bytes OcdbtTreeBuilder::body_of(size_t level, size_t skip) const {
  const auto& entries = levels_[level].open;
  OcdbtFiles files;
  for (const auto& entry : entries)
    if (!entry.is_inline && (files.empty() || files.back() != entry.file)) files.push_back(entry.file);
  std::sort(files.begin(), files.end(), before);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  Bytes out;
  out.push_back(static_cast<std::byte>(level));
  append_files(out, files);
  append_varint(out, entries.size());
  append_keys(out, level, skip);
  if (level == 0) {
    for (const auto& entry : entries) append_varint(out, entry.is_inline ? entry.value.size() : entry.length);
    for (const auto& entry : entries) out.push_back(static_cast<std::byte>(!entry.is_inline));
  }
  for (const auto& entry : entries)
    if (!entry.is_inline) append_varint(out, index_of(files, entry.file));
  for (const auto& entry : entries)
    if (!entry.is_inline) append_varint(out, entry.offset);
  if (level == 0) {
    for (const auto& entry : entries)
      if (entry.is_inline) append_text(out, entry.value);
    return out;
  }
  append_children(out, entries);
  return out;
}

/// Makes a node of what is open. The prefix that all its keys have is left to its parent; of an interior node no more than each child's.
Status OcdbtTreeBuilder::cut(size_t level, bool root) {
  auto& open = levels_[level].open;
  size_t skip = root ? 0 : shared_prefix(open.front().key, open.back().key);
  if (level > 0 && !root)
    for (const auto& entry : open) skip = std::min(skip, entry.shared);
  const int32_t* zstd = config_.zstd_level ? &*config_.zstd_level : nullptr;
  SHARDWRIGHT_ASSIGN(Bytes frame, make_ocdbt_frame(detail::OcdbtMagic::kNode, body_of(level, skip), zstd));
  Entry parent{open.front().key, "", false, node_file_, node_offset_ + nodes_.size(), frame.size()};
  parent.shared = skip;
  for (const auto& entry : open) parent.statistics += entry.statistics;
  parent.statistics.tree_bytes += frame.size();
  nodes_.insert(nodes_.end(), frame.begin(), frame.end());
  open.clear();
  levels_[level].bytes = 0;
  levels_[level].cut = true;
  if (!root) return put(level + 1, std::move(parent));
  version_.height = static_cast<uint8_t>(level);
  version_.root = OcdbtRange{0, parent.offset, parent.length};
  version_.statistics = parent.statistics;
  return {};
}

Result<OcdbtVersion> OcdbtTreeBuilder::finish() {
  if (!any_) return version_;
  for (size_t level = 0; level < levels_.size(); ++level) {
    if (levels_[level].open.empty()) continue;
    bool root = level + 1 == levels_.size() && !levels_[level].cut;
    SHARDWRIGHT_TRY(cut(level, root));
  }
  return version_;
}

Result<Bytes> make_ocdbt_manifest(const OcdbtConfig& config, const OcdbtVersion& version, const OcdbtFile& node_file) {
  Bytes body(config.uuid.begin(), config.uuid.end());
  body.push_back(std::byte{config.numbered});
  append_varint(body, config.max_inline_bytes);
  append_varint(body, config.max_node_bytes);
  body.push_back(std::byte{config.arity_log2});
  append_varint(body, config.zstd_level ? 1 : 0);
  if (config.zstd_level) append_le(body, *config.zstd_level);
  // TensorStore wants a table entry even where there is no root.
  append_files(body, {version.root ? node_file : OcdbtFile{}});
  append_varint(body, 1);
  append_varint(body, version.generation);
  body.push_back(std::byte{version.height});
  append_varint(body, 0);
  append_varint(body, version.root ? version.root->offset : detail::kOcdbtMissing);
  append_varint(body, version.root ? version.root->length : detail::kOcdbtMissing);
  append_varint(body, version.statistics.keys);
  append_varint(body, version.statistics.tree_bytes);
  append_varint(body, version.statistics.indirect_bytes);
  append_le(body, version.commit_ns);
  append_varint(body, 0);
  const int32_t* zstd = config.zstd_level ? &*config.zstd_level : nullptr;
  return make_ocdbt_frame(detail::OcdbtMagic::kManifest, body, zstd);
}

}  // namespace shardwright
