// Every field is a column: all entries' first, then all entries' second, ...
#include "shardwright/store/ocdbt_format.h"

#include <algorithm>

#include "shardwright/store/ocdbt_frame.h"

namespace shardwright {

using detail::OcdbtCursor;
using detail::OcdbtMagic;

namespace {

constexpr uint64_t kMaxPath = 65535, kMaxEntries = 1 << 20, kMaxArityLog2 = 16, kMaxHeight = 64;

Error named(const char* what, Error error) {
  error.message = std::string(what) + ": " + error.message;
  return error;
}

/// Paths share prefixes: a path is so much of the one before, and a suffix. No two have bases that differ within what they share.
OcdbtFiles read_files(OcdbtCursor& in, const std::string& transitive) {
  uint64_t count = in.count(2);
  if (count > kMaxEntries) in.refuse("its table has more files than any");
  auto prefixes = in.varints(count > 0 ? count - 1 : 0), suffixes = in.varints(count), bases = in.varints(count);
  OcdbtFiles files;
  std::string path;
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    uint64_t prefix = i == 0 ? 0 : prefixes[i - 1];
    if (prefix > path.size()) in.refuse("a path shares more with the one before than that has");
    if (i > 0 && prefix > std::min(bases[i - 1], bases[i]) && bases[i] != bases[i - 1])
      in.refuse("paths share what is base in one and not in the other");
    if (!in.ok()) break;
    path.resize(prefix);
    path += text_of(in.raw(suffixes[i]));
    if (transitive.size() + path.size() > kMaxPath) in.refuse("a path is too long");
    in.charge(sizeof(OcdbtFile) + transitive.size() + path.size());
    if (bases[i] > path.size()) in.refuse("a path is shorter than its base");
    if (in.ok()) files.push_back({transitive + path.substr(0, bases[i]), path.substr(bases[i])});
  }
  return files;
}

OcdbtRange range_of(OcdbtCursor& in, const OcdbtFiles& files, uint64_t file, uint64_t offset, uint64_t length) {
  if (file >= files.size()) in.refuse("a file of the table is named that is not there");
  if (offset > static_cast<uint64_t>(INT64_MAX) || length > static_cast<uint64_t>(INT64_MAX) - offset)
    in.refuse("a range does not fit 63 bits");
  return {static_cast<uint32_t>(file), offset, length};
}

OcdbtConfig read_config(OcdbtCursor& in) {
  OcdbtConfig config;
  View uuid = in.raw(16);
  std::copy(uuid.begin(), uuid.end(), config.uuid.begin());
  uint8_t kind = in.byte();
  if (kind > 1) in.refuse("its kind is not known");
  config.numbered = kind == 1;
  config.max_inline_bytes = in.varint();
  config.max_node_bytes = in.varint();
  if (in.ok() && config.max_inline_bytes > kOcdbtMaxInline) in.refuse("inline values could be too large");
  config.arity_log2 = in.byte();
  if (in.ok() && (config.arity_log2 == 0 || config.arity_log2 > kMaxArityLog2)) in.refuse("its arity is impossible");
  uint64_t compression = in.varint();
  if (compression > 1) in.refuse("its compression is not known");
  if (compression == 1) {
    View level = in.raw(4);
    config.zstd_level = level.empty() ? 0 : load_le<int32_t>(level);
  }
  return config;
}

/// Generations grow, and no more versions stand in a leaf than its arity allows for its last one.
std::vector<OcdbtVersion> read_versions(OcdbtCursor& in, const OcdbtFiles& files, uint8_t arity_log2) {
  uint64_t count = in.count(16);
  in.charge(count * sizeof(OcdbtVersion));
  auto generations = in.varints(count);
  View heights = in.raw(count);
  auto file = in.varints(count), offset = in.varints(count), length = in.varints(count);
  auto keys = in.varints(count), tree = in.varints(count), indirect = in.varints(count);
  auto times = in.numbers(count);
  std::vector<OcdbtVersion> out;
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    OcdbtVersion version{
        generations[i], std::to_integer<uint8_t>(heights[i]), {}, {keys[i], tree[i], indirect[i]}, times[i]};
    if (version.generation == 0 || (i > 0 && version.generation <= generations[i - 1]))
      in.refuse("generations do not grow");
    if (offset[i] == detail::kOcdbtMissing && length[i] == detail::kOcdbtMissing) {
      if (version.height != 0 || version.statistics != OcdbtStatistics{}) in.refuse("an empty version is not empty");
      if (file[i] >= files.size()) in.refuse("a file of the table is named that is not there");
    } else {
      version.root = range_of(in, files, file[i], offset[i], length[i]);
    }
    if (version.height > kMaxHeight) in.refuse("a tree is higher than any");
    out.push_back(version);
  }
  uint64_t most = out.empty() ? 0 : ((out.back().generation - 1) & ((uint64_t{1} << arity_log2) - 1)) + 1;
  if (in.ok() && count == 0) in.refuse("it has no version");
  if (in.ok() && count > most) in.refuse("it has more versions than its arity allows");
  return out;
}

/// with_heights: in the manifest; else all are `height`.
std::vector<OcdbtVersionBranch> read_branches(OcdbtCursor& in, const OcdbtFiles& files, bool with_heights,
                                              uint8_t height) {
  uint64_t count = in.count(13);
  in.charge(count * sizeof(OcdbtVersionBranch));
  auto generations = in.varints(count), file = in.varints(count), offset = in.varints(count),
       length = in.varints(count);
  auto versions = in.varints(count);
  auto times = in.numbers(count);
  View heights = with_heights ? in.raw(count) : View{};
  std::vector<OcdbtVersionBranch> out;
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    OcdbtVersionBranch branch{generations[i], range_of(in, files, file[i], offset[i], length[i]), versions[i], times[i],
                              height};
    if (with_heights) branch.height = std::to_integer<uint8_t>(heights[i]);
    if (branch.generation == 0 || (i > 0 && branch.generation <= generations[i - 1]))
      in.refuse("generations do not grow");
    if (with_heights &&
        (branch.height == 0 || branch.height > kMaxHeight || (i > 0 && branch.height >= out.back().height)))
      in.refuse("heights of version nodes do not shrink");
    out.push_back(branch);
  }
  return out;
}

}  // namespace

Result<OcdbtManifest> parse_ocdbt_manifest(View bytes, uint64_t max_bytes) {
  SHARDWRIGHT_ASSIGN(Bytes body, open_ocdbt_frame(bytes, OcdbtMagic::kManifest, max_bytes));
  OcdbtCursor in(body, max_bytes);
  OcdbtManifest out;
  out.config = read_config(in);
  if (in.ok() && !out.config.numbered) {
    out.files = read_files(in, "");
    out.versions = read_versions(in, out.files, out.config.arity_log2);
    out.branches = read_branches(in, out.files, true, 0);
    if (in.ok() && !out.branches.empty() && out.branches.back().generation >= out.versions.front().generation)
      in.refuse("older versions are not older");
  }
  auto status = in.finish();
  if (!status.ok()) return named("OCDBT manifest", std::move(status.error()));
  return out;
}

Result<OcdbtVersionNode> parse_ocdbt_version_node(View bytes, const std::string& transitive, uint64_t max_bytes) {
  SHARDWRIGHT_ASSIGN(Bytes body, open_ocdbt_frame(bytes, OcdbtMagic::kVersionNode, max_bytes));
  OcdbtCursor in(body, max_bytes);
  OcdbtVersionNode out;
  out.arity_log2 = in.byte();
  out.height = in.byte();
  if (in.ok() && (out.arity_log2 == 0 || out.arity_log2 > kMaxArityLog2)) in.refuse("its arity is impossible");
  if (in.ok() && out.height > kMaxHeight) in.refuse("it is higher than any");
  out.files = read_files(in, transitive);
  if (out.height == 0)
    out.versions = read_versions(in, out.files, out.arity_log2);
  else
    out.branches = read_branches(in, out.files, false, static_cast<uint8_t>(out.height - 1));
  if (in.ok() && out.height > 0 && out.branches.empty()) in.refuse("it has no version");
  auto status = in.finish();
  if (!status.ok()) return named("OCDBT version node", std::move(status.error()));
  return out;
}

uint64_t OcdbtNode::memory_bytes() const {
  uint64_t bytes = sizeof *this + keys_.size() + body_.size() + entries_.size() * sizeof(Entry);
  for (const auto& file : files_) bytes += sizeof file + file.base.size() + file.relative.size();
  return bytes;
}

class OcdbtNodeParser {
 public:
  /// The cursor's view outlives the move: a vector's bytes stay where they are.
  OcdbtNodeParser(Bytes body, const std::string& transitive, uint64_t max_bytes)
      : in_(body, max_bytes), transitive_(transitive) {
    node_.body_ = std::move(body);
  }

  Result<OcdbtNode> parse() {
    node_.height_ = in_.byte();
    node_.files_ = read_files(in_, transitive_);
    uint64_t count = in_.count(1);
    if (in_.ok() && count == 0) in_.refuse("it is empty");
    if (count > kMaxEntries) in_.refuse("it has more entries than any");
    read_keys(count);
    if (in_.ok()) {
      if (node_.height_ > 0)
        read_children();
      else
        read_values();
    }
    auto status = in_.finish();
    if (!status.ok()) return named("OCDBT node", std::move(status.error()));
    return std::move(node_);
  }

 private:
  void read_keys(uint64_t count) {
    auto prefixes = in_.varints(count > 0 ? count - 1 : 0), suffixes = in_.varints(count);
    auto shared = in_.varints(node_.height_ > 0 ? count : 0);
    std::string key;
    in_.charge(count * sizeof(OcdbtNode::Entry));
    node_.entries_.reserve(in_.ok() ? count : 0);
    for (uint64_t i = 0; i < count && in_.ok(); ++i) {
      uint64_t prefix = i == 0 ? 0 : prefixes[i - 1];
      if (prefix > key.size()) in_.refuse("a key shares more with the one before than that has");
      View suffix = in_.raw(in_.ok() ? suffixes[i] : 0);
      if (!in_.ok() || prefix + suffix.size() > kOcdbtMaxKey) {
        in_.refuse("a key is too long");
        return;
      }
      std::string next = key.substr(0, prefix) + std::string(text_of(suffix));
      if (i > 0 && next <= key) in_.refuse("keys are not in order");
      if (node_.height_ > 0 && shared[i] > next.size()) in_.refuse("a child shares more than its key has");
      key = std::move(next);
      in_.charge(key.size());  // a small node can spell out 65,535 bytes a key
      OcdbtNode::Entry entry{node_.keys_.size(), static_cast<uint32_t>(key.size())};
      if (node_.height_ > 0) entry.shared_bytes = static_cast<uint32_t>(shared[i]);
      node_.entries_.push_back(entry);
      node_.keys_ += key;
    }
  }

  void read_values() {
    auto& entries = node_.entries_;
    auto lengths = in_.varints(entries.size());
    View kinds = in_.raw(entries.size());
    if (!in_.ok()) return;
    uint64_t indirect = 0;
    for (std::byte kind : kinds) {
      if (std::to_integer<int>(kind) > 1) in_.refuse("a value is of no known kind");
      indirect += kind == std::byte{1};
    }
    auto file = in_.varints(indirect), offset = in_.varints(indirect);
    uint64_t next = 0;
    for (size_t i = 0; i < entries.size() && in_.ok(); ++i) {
      auto& entry = entries[i];
      entry.is_inline = kinds[i] == std::byte{0};
      if (!entry.is_inline) {
        entry.range = range_of(in_, node_.files_, file[next], offset[next], lengths[i]);
        ++next;
        continue;
      }
      entry.range.length = lengths[i];
      if (lengths[i] > kOcdbtMaxInline) in_.refuse("an inline value is too long");
      entry.inline_offset = in_.position();
      in_.raw(in_.ok() ? lengths[i] : 0);
    }
  }

  void read_children() {
    auto& entries = node_.entries_;
    size_t count = entries.size();
    auto file = in_.varints(count), offset = in_.varints(count), length = in_.varints(count);
    auto keys = in_.varints(count), tree = in_.varints(count), indirect = in_.varints(count);
    for (size_t i = 0; i < count && in_.ok(); ++i) {
      entries[i].range = range_of(in_, node_.files_, file[i], offset[i], length[i]);
      entries[i].statistics = {keys[i], tree[i], indirect[i]};
    }
  }

  OcdbtCursor in_;
  const std::string& transitive_;
  OcdbtNode node_;
};

Result<OcdbtNode> parse_ocdbt_node(View bytes, const std::string& transitive, uint64_t max_bytes) {
  SHARDWRIGHT_ASSIGN(Bytes body, open_ocdbt_frame(bytes, OcdbtMagic::kNode, max_bytes));
  return OcdbtNodeParser(std::move(body), transitive, max_bytes).parse();
}

}  // namespace shardwright
