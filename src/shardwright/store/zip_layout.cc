#include <algorithm>

#include "shardwright/store/zip.h"
#include "shardwright/store/zip_records.h"

namespace shardwright {
namespace {

using namespace detail;

constexpr uint16_t kVersion = 20, kVersion64 = 45, kUnix = 3 << 8;
constexpr uint32_t kRegularFile = 0100644u << 16;
constexpr uint64_t kZip64FieldBytes = 4 + 16;   // both sizes
constexpr uint64_t kPaddingFieldBytes = 4 + 2;  // header and the alignment itself, then zeros

bool is_wide(uint64_t bytes) { return bytes >= kSee64; }
uint32_t narrow(uint64_t value) { return is_wide(value) ? kSee64 : static_cast<uint32_t>(value); }

bool is_ascii(std::string_view name) {
  for (char c : name) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

/// Bytes of the padding field that brings a payload which would start at `offset` to a multiple of `align`: 0 or at least a field.
uint64_t padding_for(uint64_t offset, uint64_t align) {
  if (align <= 1 || offset % align == 0) return 0;
  uint64_t padding = round_up(offset, align) - offset;
  while (padding < kPaddingFieldBytes) padding += align;
  return padding;
}

void append_padding(Bytes& out, uint64_t padding, uint64_t align) {
  if (padding == 0) return;
  append_le<uint16_t>(out, kExtraPadding);
  append_le<uint16_t>(out, static_cast<uint16_t>(padding - 4));
  append_le<uint16_t>(out, static_cast<uint16_t>(align));
  out.resize(out.size() + padding - kPaddingFieldBytes);
}

void append_name(Bytes& out, std::string_view name) {
  out.insert(out.end(), view_of(name).begin(), view_of(name).end());
}

/// Version to flags to times to CRC and sizes: the same 26 bytes in local header and directory but for what precedes them.
void append_common(Bytes& out, const ZipLayout::Entry& entry, uint16_t version, uint32_t crc32) {
  append_le<uint16_t>(out, version);
  append_le<uint16_t>(out, is_ascii(entry.name) ? 0 : kFlagUtf8);
  append_le<uint16_t>(out, 0);  // stored
  append_le<uint32_t>(out, entry.dos_time);
  append_le<uint32_t>(out, crc32);
  append_le<uint32_t>(out, narrow(entry.bytes));
  append_le<uint32_t>(out, narrow(entry.bytes));
  append_le<uint16_t>(out, static_cast<uint16_t>(entry.name.size()));
}

/// Bytes of the zip64 field of a directory entry: of its values only those that do not fit.
uint64_t directory_extra_bytes(uint64_t bytes, uint64_t header_offset) {
  uint64_t values = (is_wide(bytes) ? 16 : 0) + (is_wide(header_offset) ? 8 : 0);
  return values == 0 ? 0 : 4 + values;
}

/// End records of a directory of `bytes` at `offset`, which is their own offset minus `bytes`.
void append_end(Bytes& out, uint64_t entries, uint64_t offset, uint64_t bytes) {
  bool wide = entries >= kSee64Short || is_wide(offset) || is_wide(bytes);
  if (wide) {
    append_le<uint32_t>(out, kEnd64Signature);
    append_le<uint64_t>(out, kEnd64Bytes - 12);
    append_le<uint16_t>(out, kUnix | kVersion64);
    append_le<uint16_t>(out, kVersion64);
    append_le<uint32_t>(out, 0);  // this disk
    append_le<uint32_t>(out, 0);  // disk of the directory
    append_le<uint64_t>(out, entries);
    append_le<uint64_t>(out, entries);
    append_le<uint64_t>(out, bytes);
    append_le<uint64_t>(out, offset);
    append_le<uint32_t>(out, kLocatorSignature);
    append_le<uint32_t>(out, 0);
    append_le<uint64_t>(out, offset + bytes);
    append_le<uint32_t>(out, 1);  // disks
  }
  auto count = static_cast<uint16_t>(std::min<uint64_t>(entries, kSee64Short));
  append_le<uint32_t>(out, kEndSignature);
  append_le<uint16_t>(out, 0);  // this disk
  append_le<uint16_t>(out, 0);  // disk of the directory
  append_le<uint16_t>(out, count);
  append_le<uint16_t>(out, count);
  append_le<uint32_t>(out, narrow(bytes));
  append_le<uint32_t>(out, narrow(offset));
  append_le<uint16_t>(out, 0);  // comment
}

}  // namespace

ZipLayout::ZipLayout(std::vector<Entry> entries) {
  uint64_t at = 0;
  for (Entry& entry : entries) {
    uint64_t extra = is_wide(entry.bytes) ? kZip64FieldBytes : 0;
    uint64_t unpadded = at + kLocalBytes + entry.name.size() + extra;
    uint64_t payload = unpadded + padding_for(unpadded, entry.align);
    directory_bytes_ += kDirectoryBytes + entry.name.size() + directory_extra_bytes(entry.bytes, at);
    slots_.push_back({std::move(entry), at, payload - at, payload});
    at = payload + slots_.back().entry.bytes;
  }
  directory_offset_ = at;
  bool wide = slots_.size() >= kSee64Short || is_wide(directory_offset_) || is_wide(directory_bytes_);
  directory_bytes_ += (wide ? kEnd64Bytes + kLocatorBytes : 0) + kEndBytes;
}

uint64_t ZipLayout::payload_offset(size_t entry) const { return slots_[entry].payload_offset; }
uint64_t ZipLayout::local_header_offset(size_t entry) const { return slots_[entry].header_offset; }
uint64_t ZipLayout::local_header_bytes(size_t entry) const { return slots_[entry].header_bytes; }
uint64_t ZipLayout::directory_offset() const { return directory_offset_; }
uint64_t ZipLayout::directory_bytes() const { return directory_bytes_; }

Bytes ZipLayout::local_header(size_t entry, uint32_t crc32) const {
  const Slot& slot = slots_[entry];
  bool wide = is_wide(slot.entry.bytes);
  uint64_t extra = slot.header_bytes - kLocalBytes - slot.entry.name.size();
  Bytes out;
  out.reserve(slot.header_bytes);
  append_le<uint32_t>(out, kLocalSignature);
  append_common(out, slot.entry, wide ? kVersion64 : kVersion, crc32);
  append_le<uint16_t>(out, static_cast<uint16_t>(extra));
  append_name(out, slot.entry.name);
  if (wide) {
    append_le<uint16_t>(out, kExtraZip64);
    append_le<uint16_t>(out, 16);
    append_le<uint64_t>(out, slot.entry.bytes);
    append_le<uint64_t>(out, slot.entry.bytes);
  }
  append_padding(out, extra - (wide ? kZip64FieldBytes : 0), slot.entry.align);
  return out;
}

Bytes ZipLayout::directory(std::span<const uint32_t> crcs) const {
  Bytes out;
  out.reserve(directory_bytes_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    bool wide_size = is_wide(slot.entry.bytes), wide_offset = is_wide(slot.header_offset);
    uint16_t version = wide_size || wide_offset ? kVersion64 : kVersion;
    uint64_t extra = directory_extra_bytes(slot.entry.bytes, slot.header_offset);
    append_le<uint32_t>(out, kDirectorySignature);
    append_le<uint16_t>(out, kUnix | version);
    append_common(out, slot.entry, version, crcs[i]);
    append_le<uint16_t>(out, static_cast<uint16_t>(extra));
    append_le<uint16_t>(out, 0);  // comment
    append_le<uint16_t>(out, 0);  // disk
    append_le<uint16_t>(out, 0);  // internal attributes
    append_le<uint32_t>(out, kRegularFile);
    append_le<uint32_t>(out, narrow(slot.header_offset));
    append_name(out, slot.entry.name);
    if (extra != 0) {
      append_le<uint16_t>(out, kExtraZip64);
      append_le<uint16_t>(out, static_cast<uint16_t>(extra - 4));
      if (wide_size) append_le<uint64_t>(out, slot.entry.bytes);
      if (wide_size) append_le<uint64_t>(out, slot.entry.bytes);
      if (wide_offset) append_le<uint64_t>(out, slot.header_offset);
    }
  }
  append_end(out, slots_.size(), directory_offset_, out.size());
  return out;
}

}  // namespace shardwright
