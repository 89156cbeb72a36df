#include <algorithm>
#include <cstring>
#include <optional>

#include "shardwright/store/zip.h"
#include "shardwright/store/zip_records.h"

namespace shardwright {
namespace {

using namespace detail;

constexpr uint64_t kMaxDirectory = 1 * GiB;

uint16_t u16(View bytes, size_t at) { return load_le<uint16_t>(bytes.subspan(at)); }
uint32_t u32(View bytes, size_t at) { return load_le<uint32_t>(bytes.subspan(at)); }
uint64_t u64(View bytes, size_t at) { return load_le<uint64_t>(bytes.subspan(at)); }

/// A member as the directory tells it, until its local header has been compared.
struct Entry {
  ZipMember member;
  uint64_t header_offset = 0;
  uint16_t flags = 0;
  bool needs_local_sizes = false;  // the local header says "see zip64": its extra field is still to be read
};

/// The archive being read: where it is, how long, and errors that say so.
class Archive {
 public:
  Archive(Store& store, std::string_view key, uint64_t size) : store_(store), key_(key), size_(size) {}
  uint64_t size() const { return size_; }
  std::string_view key() const { return key_; }

  Result<Bytes> read(uint64_t offset, uint64_t length) {
    Bytes bytes(length);
    ReadOp op{key_, offset, bytes};
    SHARDWRIGHT_TRY(store_.read({&op, 1}));
    return bytes;
  }
  Status read(std::span<const ReadOp> ops) { return store_.read(ops); }

  Error corrupt(std::string message, uint64_t offset) const {
    return fail(Code::kCorrupt, "zip archive: " + std::move(message)).at_path(store_.describe(key_)).at_offset(offset);
  }
  Error unsupported(std::string message, uint64_t offset) const {
    return fail(Code::kUnsupported, "zip archive: " + std::move(message))
        .at_path(store_.describe(key_))
        .at_offset(offset);
  }

 private:
  Store& store_;
  std::string_view key_;
  uint64_t size_;
};

/// Where the central directory is. It must end exactly where the end records begin.
struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

/// Offset in `tail` of the end record: the last one whose comment reaches exactly to the end of the file.
std::optional<size_t> find_end(View tail) {
  if (tail.size() < kEndBytes) return std::nullopt;
  for (size_t at = tail.size() - kEndBytes + 1; at-- > 0;) {
    if (u32(tail, at) == kEndSignature && at + kEndBytes + u16(tail, at + 20) == tail.size()) return at;
  }
  return std::nullopt;
}

/// A 32-bit value of the end record and its 64-bit one must agree, unless the former says "see zip64".
bool agree(uint64_t narrow, uint64_t see64, uint64_t wide) { return narrow == see64 || narrow == wide; }

/// The zip64 end record, which the locator before the end record points to. Replaces what the end record said.
Status read_end64(Archive& archive, View end, View locator, uint64_t locator_offset, Directory& directory) {
  uint64_t offset = u64(locator, 8);
  if (u32(locator, 4) != 0 || u32(locator, 16) > 1)
    return archive.unsupported("spread over several disks", locator_offset);
  if (offset > locator_offset || locator_offset - offset < kEnd64Bytes) {
    return archive.corrupt("zip64 end record is not before its locator", locator_offset);
  }
  SHARDWRIGHT_ASSIGN(Bytes record, archive.read(offset, kEnd64Bytes));
  // Its length counts from after the length field; whatever it holds, the locator comes next.
  if (u32(record, 0) != kEnd64Signature || u64(record, 4) != locator_offset - offset - 12) {
    return archive.corrupt("zip64 end record is damaged", offset);
  }
  if (u32(record, 16) != 0 || u32(record, 20) != 0) return archive.unsupported("spread over several disks", offset);
  Directory wide{u64(record, 48), u64(record, 40), u64(record, 32)};
  if (u64(record, 24) != wide.entries || !agree(directory.entries, kSee64Short, wide.entries) ||
      !agree(directory.bytes, kSee64, wide.bytes) || !agree(directory.offset, kSee64, wide.offset) ||
      u16(end, 8) != u16(end, 10)) {
    return archive.corrupt("end records contradict one another", offset);
  }
  directory = wide;
  auto directory_end = checked_add(wide.offset, wide.bytes);
  if (!directory_end || *directory_end != offset)
    return archive.corrupt("directory does not end at its end record", offset);
  return {};
}

Result<Directory> find_directory(Archive& archive) {
  uint64_t tail_bytes = std::min<uint64_t>(archive.size(), kLocatorBytes + kEndBytes + 0xffff);
  uint64_t tail_offset = archive.size() - tail_bytes;
  SHARDWRIGHT_ASSIGN(Bytes tail, archive.read(tail_offset, tail_bytes));
  auto at = find_end(tail);
  if (!at) {
    auto error = archive.corrupt("no end record", tail_offset);
    error.expected = "a complete archive, which ends in its directory";
    error.hint = "the file may be truncated";
    return error;
  }
  View end = View(tail).subspan(*at);
  uint64_t end_offset = tail_offset + *at;
  uint16_t disk = u16(end, 4), directory_disk = u16(end, 6);
  if ((disk != 0 && disk != kSee64Short) || (directory_disk != 0 && directory_disk != kSee64Short)) {
    return archive.unsupported("spread over several disks", end_offset);
  }
  Directory directory{u32(end, 16), u32(end, 12), u16(end, 10)};
  if (*at >= kLocatorBytes && u32(tail, *at - kLocatorBytes) == kLocatorSignature) {
    View locator = View(tail).subspan(*at - kLocatorBytes, kLocatorBytes);
    SHARDWRIGHT_TRY(read_end64(archive, end, locator, end_offset - kLocatorBytes, directory));
  } else if (u16(end, 8) != directory.entries || directory.offset + directory.bytes != end_offset) {
    auto error = archive.corrupt("directory does not end at the end record", end_offset);
    error.found = std::to_string(directory.bytes) + " bytes at offset " + std::to_string(directory.offset);
    error.expected = "an end at offset " + std::to_string(end_offset);
    return error;
  }
  if (directory.entries > directory.bytes / kDirectoryBytes) {
    return archive.corrupt("directory is too short for its " + std::to_string(directory.entries) + " entries",
                           directory.offset);
  }
  if (directory.bytes > kMaxDirectory) {
    return archive.unsupported("directory of " + std::to_string(directory.bytes) + " bytes", directory.offset);
  }
  return directory;
}

/// Data of extra field `id`; empty when there is none. `damaged` when a field that comes before its end runs out of the area.
/// Fewer than four bytes at the end are padding, which some writers leave.
View find_extra(View extra, uint16_t id, bool& damaged) {
  damaged = false;
  while (extra.size() >= 4) {
    size_t length = u16(extra, 2);
    if (length > extra.size() - 4) {
      damaged = true;
      return {};
    }
    if (u16(extra, 0) == id) return extra.subspan(4, length);
    extra = extra.subspan(4 + length);
  }
  return {};
}

/// Takes those of {bytes, stored, offset} that say "see zip64" from the extra field: only these are in it, in this order.
Status widen(const Archive& archive, View extra, uint64_t at, std::span<uint64_t* const> fields) {
  bool damaged = false,
       wanted = std::any_of(fields.begin(), fields.end(), [](const uint64_t* f) { return *f == kSee64; });
  if (!wanted) return {};
  View wide = find_extra(extra, kExtraZip64, damaged);
  for (uint64_t* field : fields) {
    if (*field != kSee64) continue;
    if (damaged || wide.size() < 8) return archive.corrupt("zip64 extra field is damaged or missing", at);
    *field = u64(wide, 0);
    wide = wide.subspan(8);
  }
  return {};
}

Status check_kind(const Archive& archive, const Entry& entry, uint64_t at) {
  const std::string& name = entry.member.name;
  if (name.empty() || name.find('\0') != std::string::npos)
    return archive.corrupt("member name is empty or has a NUL byte", at);
  if ((entry.flags & (kFlagEncrypted | kFlagStrongEncryption | kFlagMasked)) != 0) {
    return archive.unsupported("member '" + name + "' is encrypted", at);
  }
  if ((entry.flags & kFlagPatch) != 0) return archive.unsupported("member '" + name + "' is a patch", at);
  if (entry.member.method != 0 && entry.member.method != 8) {
    auto error = archive.unsupported("compression of member '" + name + "'", at);
    error.found = "method " + std::to_string(entry.member.method);
    error.expected = "stored (0) or deflate (8)";
    return error;
  }
  if (entry.member.method == 0 && entry.member.stored_bytes != entry.member.bytes) {
    return archive.corrupt("sizes of stored member '" + name + "' differ", at);
  }
  return {};
}

Result<std::vector<Entry>> parse_directory(const Archive& archive, View bytes, const Directory& directory) {
  std::vector<Entry> entries;
  entries.reserve(directory.entries);
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    uint64_t place = directory.offset + at;
    if (bytes.size() - at < kDirectoryBytes) return archive.corrupt("directory ends inside an entry", place);
    View fixed = bytes.subspan(at, kDirectoryBytes);
    if (u32(fixed, 0) != kDirectorySignature) return archive.corrupt("directory entry has no signature", place);
    uint64_t name_bytes = u16(fixed, 28), extra_bytes = u16(fixed, 30), comment_bytes = u16(fixed, 32);
    uint64_t variable = name_bytes + extra_bytes + comment_bytes;
    if (bytes.size() - at - kDirectoryBytes < variable) return archive.corrupt("directory ends inside an entry", place);
    Entry entry;
    ZipMember& member = entry.member;
    member.name = text_of(bytes.subspan(at + kDirectoryBytes, name_bytes));
    member.method = u16(fixed, 10);
    member.crc32 = u32(fixed, 16);
    member.stored_bytes = u32(fixed, 20);
    member.bytes = u32(fixed, 24);
    entry.flags = u16(fixed, 8);
    entry.header_offset = u32(fixed, 42);
    uint64_t* fields[] = {&member.bytes, &member.stored_bytes, &entry.header_offset};
    SHARDWRIGHT_TRY(widen(archive, bytes.subspan(at + kDirectoryBytes + name_bytes, extra_bytes), place, fields));
    if (u16(fixed, 34) != 0 && u16(fixed, 34) != kSee64Short)
      return archive.unsupported("spread over several disks", place);
    SHARDWRIGHT_TRY(check_kind(archive, entry, place));
    entries.push_back(std::move(entry));
    at += kDirectoryBytes + variable;
  }
  if (at != bytes.size()) return archive.corrupt("directory is longer than its entries", directory.offset + at);
  return entries;
}

/// Local header (fixed part and name) against the directory. With a descriptor the sizes and CRC may be left out here.
Status compare_local(const Archive& archive, View local, Entry& entry) {
  const ZipMember& member = entry.member;
  auto differ = [&](const char* what) {
    return archive.corrupt(std::string(what) + " of member '" + member.name + "' differs from the directory",
                           entry.header_offset);
  };
  if (u32(local, 0) != kLocalSignature)
    return archive.corrupt("no local header for member '" + member.name + "'", entry.header_offset);
  if (u16(local, 26) != member.name.size() || text_of(local.subspan(kLocalBytes)) != member.name) return differ("name");
  if (u16(local, 8) != member.method) return differ("method");
  uint16_t unlike = u16(local, 6) ^ entry.flags;
  if ((unlike & (kFlagEncrypted | kFlagDescriptor | kFlagStrongEncryption | kFlagMasked)) != 0) return differ("flags");
  uint32_t crc = u32(local, 14), stored = u32(local, 18), bytes = u32(local, 22);
  if ((entry.flags & kFlagDescriptor) != 0) {
    if (crc != 0 && crc != member.crc32) return differ("CRC");
    if (stored != 0 && stored != kSee64 && stored != member.stored_bytes) return differ("stored size");
    if (bytes != 0 && bytes != kSee64 && bytes != member.bytes) return differ("size");
  } else {
    if (crc != member.crc32) return differ("CRC");
    entry.needs_local_sizes = stored == kSee64 || bytes == kSee64;
    if (stored != kSee64 && stored != member.stored_bytes) return differ("stored size");
    if (bytes != kSee64 && bytes != member.bytes) return differ("size");
  }
  entry.member.offset = entry.header_offset + kLocalBytes + member.name.size() + u16(local, 28);
  return {};
}

/// Sizes that the local header keeps in its own zip64 field. Both are in it there, whatever the directory needs.
Status compare_local64(const Archive& archive, View extra, const Entry& entry) {
  uint64_t bytes = kSee64, stored = kSee64;
  uint64_t* fields[] = {&bytes, &stored};
  SHARDWRIGHT_TRY(widen(archive, extra, entry.header_offset, fields));
  if (bytes == entry.member.bytes && stored == entry.member.stored_bytes) return {};
  return archive.corrupt("zip64 size of member '" + entry.member.name + "' differs from the directory",
                         entry.header_offset);
}

/// Reads `length(entry)` bytes at `offset(entry)` of entries for which that is not 0, many at a time, and hands them to `check`.
template <class Offset, class Length, class Check>
Status read_for_each(Archive& archive, std::span<Entry*> entries, Offset offset, Length length, Check check) {
  constexpr uint64_t kBatchBytes = 256 * KiB;
  Bytes buffer;
  std::vector<ReadOp> ops;
  for (size_t begin = 0, end; begin < entries.size(); begin = end) {
    uint64_t total = 0;
    for (end = begin; end < entries.size() && (end == begin || total < kBatchBytes); ++end)
      total += length(*entries[end]);
    buffer.resize(total);
    ops.clear();
    uint64_t used = 0;
    for (size_t i = begin; i < end; ++i) {
      ops.push_back({archive.key(), offset(*entries[i]), MutableView(buffer).subspan(used, length(*entries[i]))});
      used += length(*entries[i]);
    }
    SHARDWRIGHT_TRY(archive.read(ops));
    for (size_t i = begin; i < end; ++i) SHARDWRIGHT_TRY(check(View(ops[i - begin].into), *entries[i]));
  }
  return {};
}

/// Every header and payload lies before the directory, and none in another. `sorted`: by header offset.
Status check_ranges(const Archive& archive, std::span<Entry* const> sorted, uint64_t directory_offset) {
  for (size_t i = 0; i < sorted.size(); ++i) {
    const ZipMember& member = sorted[i]->member;
    uint64_t limit = i + 1 < sorted.size() ? sorted[i + 1]->header_offset : directory_offset;
    auto end = checked_add(member.offset, member.stored_bytes);
    if (end && *end <= limit) continue;
    std::string other = i + 1 < sorted.size() ? "member '" + sorted[i + 1]->member.name + "'" : "the directory";
    return archive.corrupt("member '" + member.name + "' overlaps " + other, sorted[i]->header_offset);
  }
  return {};
}

Status check_names(const Archive& archive, std::vector<Entry>& entries) {
  std::vector<const Entry*> sorted;
  sorted.reserve(entries.size());
  for (const Entry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry* a, const Entry* b) { return a->member.name < b->member.name; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->member.name != sorted[i - 1]->member.name) continue;
    return archive.corrupt("two members are called '" + sorted[i]->member.name + "'", sorted[i]->header_offset);
  }
  return {};
}

Status check_local_headers(Archive& archive, std::vector<Entry>& entries, uint64_t directory_offset) {
  std::vector<Entry*> sorted;
  for (Entry& entry : entries) {
    auto end = checked_add(entry.header_offset, kLocalBytes + entry.member.name.size());
    if (!end || *end > directory_offset) {
      return archive.corrupt("local header of member '" + entry.member.name + "' is not before the directory",
                             entry.header_offset);
    }
    sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry* a, const Entry* b) { return a->header_offset < b->header_offset; });
  SHARDWRIGHT_TRY(read_for_each(
      archive, sorted, [](const Entry& entry) { return entry.header_offset; },
      [](const Entry& entry) { return kLocalBytes + entry.member.name.size(); },
      [&](View local, Entry& entry) { return compare_local(archive, local, entry); }));
  SHARDWRIGHT_TRY(check_ranges(archive, sorted, directory_offset));
  std::erase_if(sorted, [](const Entry* entry) { return !entry->needs_local_sizes; });
  auto extra_offset = [](const Entry& entry) { return entry.header_offset + kLocalBytes + entry.member.name.size(); };
  return read_for_each(
      archive, sorted, extra_offset, [&](const Entry& entry) { return entry.member.offset - extra_offset(entry); },
      [&](View extra, const Entry& entry) { return compare_local64(archive, extra, entry); });
}

}  // namespace

Result<std::vector<ZipMember>> read_zip(Store& store, std::string_view key) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return fail(Code::kNotFound, "no such file").at_path(store.describe(key));
  Archive archive(store, key, *size);
  SHARDWRIGHT_ASSIGN(Directory directory, find_directory(archive));
  SHARDWRIGHT_ASSIGN(Bytes bytes, archive.read(directory.offset, directory.bytes));
  SHARDWRIGHT_ASSIGN(auto entries, parse_directory(archive, bytes, directory));
  SHARDWRIGHT_TRY(check_names(archive, entries));
  SHARDWRIGHT_TRY(check_local_headers(archive, entries, directory.offset));
  std::vector<ZipMember> members;
  members.reserve(entries.size());
  for (Entry& entry : entries) members.push_back(std::move(entry.member));
  return members;
}

}  // namespace shardwright
