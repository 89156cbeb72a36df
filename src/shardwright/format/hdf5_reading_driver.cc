#include "shardwright/format/hdf5_reading_driver.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace shardwright {

struct Hdf5Input::State {
  static constexpr uint64_t kBlockBytes = 4 * KiB, kSlots = 1024;
  Hdf5Region region;
  uint64_t most_at_once = 0;
  Status status;          ///< first error of the store
  bool locating = false;  ///< raw data is not wanted, only where it lies
  uint64_t located_offset = 0, located_length = 0;
  struct Slot {
    uint64_t block = kUnknown;
    Bytes bytes;
  };
  std::array<Slot, kSlots> slots;  ///< direct mapped by block number

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
  *flags = H5FD_FEAT_ACCUMULATE_METADATA;
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
  return state_->status.error();
}

Result<Hdf5Input> Hdf5Input::open(const Hdf5Region& region, uint64_t max_metadata_bytes) {
  auto state = std::make_unique<State>();
  state->region = region;
  state->most_at_once = max_metadata_bytes;
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

}  // namespace shardwright
