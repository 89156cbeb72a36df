#include "shardwright/format/hdf5_reading_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "shardwright/format/hdf5_global_heap.h"

namespace shardwright {

struct Hdf5Input::State {
  static constexpr uint64_t kBlockBytes = 4 * KiB, kSlots = 1024;
  static constexpr uint64_t kMostHeapObjects = 1 << 18, kHeapRereads = 16;
  Hdf5Region region;
  uint64_t most_at_once = 0;
  Status status;          ///< first error of the driver since error() told one
  bool locating = false;  ///< raw data is not wanted, only where it lies
  uint64_t located_offset = 0, located_length = 0;
  struct Slot {
    uint64_t block = kUnknown;
    Bytes bytes;
  };
  std::array<Slot, kSlots> slots;  ///< direct mapped by block number

  uint64_t base = 0;                                      ///< where addresses count from
  std::map<uint64_t, std::vector<Hdf5HeapObject>> heaps;  ///< collections by address
  uint64_t heap_objects = 0, heap_bytes = 0;              ///< held in `heaps`; read so far

  Status fetch(uint64_t offset, MutableView into) {
    ReadOp op{region.key, region.offset + offset, into};
    return region.store->read({&op, 1});
  }

  Status read(uint64_t offset, MutableView into) {
    auto end = checked_add(offset, into.size());
    if (!end || *end > region.size)
      return fail(Code::kCorrupt, "HDF5 metadata lies beyond the end of the file")
          .at_offset(offset)
          .with_found(fmt::format("{} bytes", region.size))
          .with_expected(fmt::format("{} bytes more from there", into.size()));
    if (into.size() > most_at_once)
      return fail(Code::kResourceExhausted, "one HDF5 metadata object is larger than the limit")
          .at_offset(offset)
          .with_found(fmt::format("{} bytes", into.size()))
          .with_expected(fmt::format("at most {}", most_at_once));
    if (into.size() > kBlockBytes) return fetch(offset, into);
    while (!into.empty()) {
      uint64_t block = offset / kBlockBytes, within = offset % kBlockBytes;
      auto& slot = slots[block % kSlots];
      if (slot.block != block) {
        slot.block = kUnknown;
        slot.bytes.resize(std::min(kBlockBytes, region.size - block * kBlockBytes));
        SHARDWRIGHT_TRY(fetch(block * kBlockBytes, slot.bytes));
        slot.block = block;
      }
      uint64_t count = std::min<uint64_t>(into.size(), kBlockBytes - within);
      std::memcpy(into.data(), slot.bytes.data() + within, count);
      into = into.subspan(count);
      offset += count;
    }
    return {};
  }

  /// Objects of the collection at an address. Each is read once, as long as few are held.
  Result<const std::vector<Hdf5HeapObject>*> heap_at(uint64_t address) {
    if (auto held = heaps.find(address); held != heaps.end()) return &held->second;
    auto offset = checked_add(base, address).value_or(kUnknown);
    Bytes bytes(kHeapHeaderBytes);
    SHARDWRIGHT_TRY(read(offset, bytes));
    auto size = parse_heap_header(bytes);
    if (!size.ok()) return std::move(size.error()).at_offset(offset);
    if (*size > region.size - offset)
      return fail(Code::kCorrupt, "HDF5 global heap ends beyond the end of the file")
          .at_offset(offset)
          .with_found(fmt::format("{} bytes", *size));
    heap_bytes += *size;
    if (heap_bytes / kHeapRereads > region.size)
      return fail(Code::kResourceExhausted, "HDF5 global heaps overlap").at_offset(offset);
    if (*size > most_at_once)
      return fail(Code::kResourceExhausted, "HDF5 global heap is larger than the limit (--max-metadata)")
          .at_offset(offset);
    bytes.resize(*size);
    SHARDWRIGHT_TRY(read(offset, bytes));
    auto objects = parse_heap_objects(bytes);
    if (!objects.ok()) return std::move(objects.error()).at_offset(offset);
    if (heap_objects > kMostHeapObjects) heaps.clear(), heap_objects = 0;
    heap_objects += objects->size() + 1;
    return &heaps.emplace(address, std::move(*objects)).first->second;
  }
};

namespace {

struct DriverInfo {
  Hdf5Input::State* state;
};

struct DriverFile {
  H5FD_t base;  // first: the library knows no more of it
  Hdf5Input::State* state;
  haddr_t end_of_addresses;
};

DriverFile& mine(H5FD_t* file) { return *reinterpret_cast<DriverFile*>(file); }
const DriverFile& mine(const H5FD_t* file) { return *reinterpret_cast<const DriverFile*>(file); }

H5FD_t* driver_open(const char*, unsigned, hid_t properties, haddr_t) {
  auto info = static_cast<const DriverInfo*>(H5Pget_driver_info(properties));
  if (info == nullptr) return nullptr;
  return &(new DriverFile{{}, info->state, 0})->base;
}
herr_t driver_close(H5FD_t* file) {
  delete &mine(file);
  return 0;
}
herr_t driver_query(const H5FD_t*, unsigned long* flags) {
  *flags = 0;  // no accumulator: it writes out of its bounds for lengths near 2^64, and our blocks do its work
  return 0;
}
haddr_t driver_eoa(const H5FD_t* file, H5FD_mem_t) { return mine(file).end_of_addresses; }
herr_t driver_set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  mine(file).end_of_addresses = end;
  return 0;
}
haddr_t driver_eof(const H5FD_t* file, H5FD_mem_t) { return mine(file).state->region.size; }
herr_t driver_read(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t offset, size_t size, void* into) {
  auto& state = *mine(file).state;
  if (state.locating && type == H5FD_MEM_DRAW) {
    state.located_offset = offset;
    state.located_length = size;
    return 0;
  }
  // Values, and the heaps of those of variable length, are never the library's to read. It wants one to open a virtual dataset.
  if (type == H5FD_MEM_DRAW || type == H5FD_MEM_GHEAP) {
    if (state.status.ok())
      state.status = fail(Code::kUnsupported, "virtual dataset: its values lie in other files")
                         .with_found("a description in a global heap")
                         .with_hint("copy it into one file first, e.g. `h5repack -l CONTI in.h5 out.h5`");
    return -1;
  }
  auto status = state.read(offset, {static_cast<std::byte*>(into), size});
  if (status.ok()) return 0;
  if (state.status.ok()) state.status = std::move(status);
  return -1;
}
herr_t driver_write(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) { return -1; }

hid_t driver_id() {
  static const hid_t id = [] {
    H5FD_class_t row{};
    row.name = "shardwright_reading";
    row.maxaddr = haddr_t{1} << 62;
    row.fc_degree = H5F_CLOSE_STRONG;
    row.fapl_size = sizeof(DriverInfo);
    row.open = driver_open;
    row.close = driver_close;
    row.query = driver_query;
    row.get_eoa = driver_eoa;
    row.set_eoa = driver_set_eoa;
    row.get_eof = driver_eof;
    row.read = driver_read;
    row.write = driver_write;
    H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    std::memcpy(row.fl_map, map, sizeof map);
    return H5FDregister(&row);
  }();
  return id;
}

}  // namespace

Hdf5Input::Hdf5Input(std::unique_ptr<State> state, Hdf5File file) : state_(std::move(state)), file_(std::move(file)) {}
Hdf5Input::Hdf5Input(Hdf5Input&&) noexcept = default;
Hdf5Input::~Hdf5Input() = default;

Error Hdf5Input::error(std::string message) const {
  if (state_->status.ok()) return hdf5_error(std::move(message));
  H5Eclear2(H5E_DEFAULT);
  return std::move(std::exchange(state_->status, {}).error());
}

Result<Hdf5Input> Hdf5Input::open(const Hdf5Region& region, uint64_t max_metadata_bytes) {
  auto state = std::make_unique<State>();
  state->region = region;
  state->most_at_once = max_metadata_bytes;
  SHARDWRIGHT_ASSIGN(auto superblock, find_hdf5_superblock(region));
  state->base = superblock ? superblock->offset : 0;
  DriverInfo info{state.get()};
  Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS));
  if (H5Pset_driver(access.get(), driver_id(), &info) < 0) return hdf5_error("cannot register the HDF5 file driver");
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  Hdf5File file(H5Fopen("region", H5F_ACC_RDONLY, access.get()));
  bool opened = file.ok();
  Hdf5Input input(std::move(state), std::move(file));
  if (!opened) return input.error("the HDF5 library cannot open the file");
  return input;
}

Result<std::optional<Hdf5Input::Chunk>> Hdf5Input::chunk(hid_t dataset, const hsize_t* first_element) const {
  hsize_t length = 0;
  if (H5Dget_chunk_storage_size(dataset, first_element, &length) < 0) {
    // The library has no other way to say that a chunk was never written; a broken tree gives other reasons.
    auto failed = error("cannot look up a chunk");
    if (failed.found == "chunk storage is not allocated") return std::nullopt;
    return failed;
  }
  if (length == 0) return std::nullopt;
  uint32_t mask = 0;
  std::byte unused{};
  state_->locating = true;
  state_->located_length = kUnknown;
  bool found = H5Dread_chunk(dataset, H5P_DEFAULT, first_element, &mask, &unused) >= 0;
  state_->locating = false;
  if (!found && !state_->status.ok()) return state_->status.error();
  if (!found || state_->located_length != length) return error("cannot locate a chunk");
  return Chunk{state_->located_offset, length, mask};
}

Result<std::string> Hdf5Input::heap_text(View stored) const {
  auto reference = parse_heap_reference(stored);
  if (reference.address == 0 || reference.length == 0) return std::string();
  if (reference.length > kMaxHdf5TextBytes) return fail(Code::kResourceExhausted, "HDF5 attribute is too long");
  SHARDWRIGHT_ASSIGN(const auto* objects, state_->heap_at(reference.address));
  auto object = std::ranges::find(*objects, reference.index, &Hdf5HeapObject::index);
  if (object == objects->end() || object->length < reference.length)
    return fail(Code::kCorrupt, "string that its HDF5 global heap does not hold")
        .at_offset(state_->base + reference.address)
        .with_found(object == objects->end() ? "no such object" : fmt::format("{} bytes", object->length))
        .with_expected(fmt::format("{} bytes in object {}", reference.length, reference.index));
  std::string text(reference.length, '\0');
  auto bytes = std::as_writable_bytes(std::span(text));
  SHARDWRIGHT_TRY(state_->read(state_->base + reference.address + object->offset, bytes));
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

}  // namespace shardwright
