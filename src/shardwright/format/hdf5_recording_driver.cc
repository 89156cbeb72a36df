#include "shardwright/format/hdf5_recording_driver.h"

#include <algorithm>
#include <cstring>

namespace shardwright {
namespace {

struct DriverInfo {
  Hdf5Recording* recording;
};

struct DriverFile {
  H5FD_t base;  // first: the library knows no more of it
  Hdf5Recording* recording;
  haddr_t end_of_addresses, end_of_file;
};

DriverFile& mine(H5FD_t* file) { return *reinterpret_cast<DriverFile*>(file); }
const DriverFile& mine(const H5FD_t* file) { return *reinterpret_cast<const DriverFile*>(file); }

/// Calls part(page number, offset in page, bytes) for every page that [offset, offset + size) touches.
template <class Part>
void for_each_page(uint64_t offset, size_t size, const Part& part) {
  while (size > 0) {
    size_t within = offset % Hdf5Recording::kPageBytes;
    size_t count = std::min<size_t>(size, Hdf5Recording::kPageBytes - within);
    part(offset / Hdf5Recording::kPageBytes, within, count);
    offset += count;
    size -= count;
  }
}

H5FD_t* driver_open(const char*, unsigned, hid_t properties, haddr_t) {
  auto info = static_cast<const DriverInfo*>(H5Pget_driver_info(properties));
  if (info == nullptr) return nullptr;
  return &(new DriverFile{{}, info->recording, 0, 0})->base;
}
herr_t driver_close(H5FD_t* file) {
  auto& f = mine(file);
  f.recording->size = std::max(f.end_of_addresses, f.end_of_file);
  delete &f;
  return 0;
}
herr_t driver_query(const H5FD_t*, unsigned long* flags) {
  // As the library's own file driver has them: they decide where things are placed.
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}
haddr_t driver_eoa(const H5FD_t* file, H5FD_mem_t) { return mine(file).end_of_addresses; }
herr_t driver_set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  mine(file).end_of_addresses = end;
  return 0;
}
haddr_t driver_eof(const H5FD_t* file, H5FD_mem_t) { return mine(file).end_of_file; }

herr_t driver_read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, size_t size, void* into) {
  auto* out = static_cast<std::byte*>(into);
  const auto& pages = mine(file).recording->pages;
  for_each_page(offset, size, [&](uint64_t page, size_t within, size_t count) {
    auto at = pages.find(page);
    if (at == pages.end()) {
      std::memset(out, 0, count);
    } else {
      std::memcpy(out, at->second.data() + within, count);
    }
    out += count;
  });
  return 0;
}

herr_t driver_write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, size_t size, const void* from) {
  auto& f = mine(file);
  auto* in = static_cast<const std::byte*>(from);
  for_each_page(offset, size, [&](uint64_t page, size_t within, size_t count) {
    auto& bytes = f.recording->pages.try_emplace(page).first->second;
    std::memcpy(bytes.data() + within, in, count);
    in += count;
  });
  f.end_of_file = std::max<haddr_t>(f.end_of_file, offset + size);
  return 0;
}

herr_t driver_truncate(H5FD_t* file, hid_t, hbool_t) {
  auto& f = mine(file);
  f.end_of_file = f.end_of_addresses;
  return 0;
}

hid_t driver_id() {
  static const hid_t id = [] {
    H5FD_class_t row{};
    row.name = "shardwright_recording";
    row.maxaddr = haddr_t{1} << 62;
    row.fc_degree = H5F_CLOSE_WEAK;
    row.fapl_size = sizeof(DriverInfo);
    row.open = driver_open;
    row.close = driver_close;
    row.query = driver_query;
    row.get_eoa = driver_eoa;
    row.set_eoa = driver_set_eoa;
    row.get_eof = driver_eof;
    row.read = driver_read;
    row.write = driver_write;
    row.truncate = driver_truncate;
    H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    std::memcpy(row.fl_map, map, sizeof map);
    return H5FDregister(&row);
  }();
  return id;
}

}  // namespace

Hdf5Recorder::Hdf5Recorder(std::unique_ptr<Hdf5Recording> recording, Hdf5File file)
    : recording_(std::move(recording)), file_(std::move(file)) {}
Hdf5Recorder::Hdf5Recorder(Hdf5Recorder&&) noexcept = default;
Hdf5Recorder::~Hdf5Recorder() = default;

Result<Hdf5Recorder> Hdf5Recorder::create(uint64_t meta_block_bytes) {
  auto recording = std::make_unique<Hdf5Recording>();
  DriverInfo info{recording.get()};
  Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS)), creation(H5Pcreate(H5P_FILE_CREATE));
  if (H5Pset_driver(access.get(), driver_id(), &info) < 0) return hdf5_error("cannot register the HDF5 file driver");
  if (meta_block_bytes > 0) H5Pset_meta_block_size(access.get(), meta_block_bytes);
  H5Pset_obj_track_times(creation.get(), false);
  Hdf5File file(H5Fcreate("recording", H5F_ACC_TRUNC, creation.get(), access.get()));
  if (!file.ok()) return hdf5_error("cannot lay out an HDF5 file");
  return Hdf5Recorder(std::move(recording), std::move(file));
}

Result<Hdf5Recording> Hdf5Recorder::finish() {
  if (!file_.close()) return hdf5_error("cannot lay out an HDF5 file");
  return std::move(*recording_);
}

}  // namespace shardwright
