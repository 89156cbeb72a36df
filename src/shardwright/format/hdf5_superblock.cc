#include "shardwright/format/hdf5_superblock.h"

#include <algorithm>

namespace shardwright {
namespace {

constexpr std::string_view kSignature{"\x89HDF\r\n\x1a\n", 8};
constexpr size_t kSuperblockBytes = 64;

}  // namespace

Result<Hdf5Region> hdf5_region(Store& store, std::string_view key) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return fail(Code::kNotFound, "no such file").at_path(store.describe(key));
  return Hdf5Region{&store, std::string(key), 0, *size};
}

Result<std::optional<Hdf5Superblock>> parse_hdf5_superblock(View bytes, uint64_t offset) {
  if (bytes.size() < 8 || text_of(bytes.first(8)) != kSignature) return std::nullopt;
  auto bad = [&](Code code, std::string what) { return fail(code, std::move(what)).at_offset(offset); };
  if (bytes.size() < 48) return bad(Code::kCorrupt, "HDF5 file ends inside its superblock");
  auto byte = [&](size_t at) { return std::to_integer<int>(bytes[at]); };
  Hdf5Superblock out;
  out.offset = offset;
  out.version = byte(8);
  if (out.version > 3)
    return bad(Code::kUnsupported, "unknown version of the HDF5 superblock")
        .with_found(std::to_string(out.version))
        .with_expected("0 to 3");
  bool old = out.version < 2;
  int offset_bytes = byte(old ? 13 : 9), length_bytes = byte(old ? 14 : 10);
  if (offset_bytes != 8 || length_bytes != 8)
    return bad(Code::kUnsupported, "HDF5 file with addresses or lengths that are not 8 bytes wide")
        .with_found(std::to_string(offset_bytes) + " and " + std::to_string(length_bytes));
  // Base address, one more address, then the end of the file; version 1 has four more bytes before them.
  size_t base_at = out.version == 0 ? 24 : out.version == 1 ? 28 : 12;
  if (bytes.size() < base_at + 24) return bad(Code::kCorrupt, "HDF5 file ends inside its superblock");
  // As the library does: the signature's place counts, whatever base address was written before a user block was put in front.
  uint64_t base = load_le<uint64_t>(bytes.subspan(base_at)), end = load_le<uint64_t>(bytes.subspan(base_at + 16));
  if (end < base) return bad(Code::kCorrupt, "end of the HDF5 file lies before its start");
  auto total = checked_add(offset, end - base);
  if (!total) return bad(Code::kCorrupt, "end of the HDF5 file does not fit 64 bits");
  out.end = *total;
  return out;
}

Result<std::optional<Hdf5Superblock>> find_hdf5_superblock(const Hdf5Region& region) {
  for (uint64_t at = 0; at + 8 <= region.size; at = at == 0 ? 512 : at * 2) {
    Bytes bytes(std::min<uint64_t>(kSuperblockBytes, region.size - at));
    ReadOp op{region.key, region.offset + at, bytes};
    SHARDWRIGHT_TRY(region.store->read({&op, 1}));
    auto found = parse_hdf5_superblock(bytes, at);
    if (!found.ok() || *found) return found;
  }
  return std::nullopt;
}

}  // namespace shardwright
