#include "shardwright/format/hdf5_layout.h"

#include <algorithm>
#include <unordered_set>

#include "shardwright/format/hdf5_types.h"
#include "shardwright/format/keras_names.h"

namespace shardwright {
namespace {

class FileMaker {
 public:
  FileMaker(const Catalog& want, hid_t file, Hdf5Labels& labels) : want_(want), file_(file), labels_(labels) {}
  Status prepare();
  Status add_metadata(const std::string& metadata);
  /// Offset of the payload; kUnknown when it has no bytes.
  Result<uint64_t> add(const Hdf5Plan& plan);
  /// Groups of the labels that are left, but for those that a dataset is in the way of.
  Status add_empty_groups(std::span<const Hdf5Plan> plans);

 private:
  Status ensure_group(const std::string& path);
  Status add_link(const Hdf5Plan::Name& name, const std::string& target);
  Result<Hdf5Dataset> create(const Catalog::Spec& spec, const std::string& path);
  const Catalog& want_;
  hid_t file_;
  Hdf5Labels& labels_;
  Hdf5Properties links_, groups_, datasets_;
  std::unordered_set<std::string> made_;
};

Status FileMaker::prepare() {
  links_ = Hdf5Properties(H5Pcreate(H5P_LINK_CREATE));
  groups_ = Hdf5Properties(H5Pcreate(H5P_GROUP_CREATE));
  datasets_ = Hdf5Properties(H5Pcreate(H5P_DATASET_CREATE));
  bool good =
      H5Pset_char_encoding(links_.get(), H5T_CSET_UTF8) >= 0 && H5Pset_obj_track_times(groups_.get(), false) >= 0 &&
      H5Pset_obj_track_times(datasets_.get(), false) >= 0 && H5Pset_layout(datasets_.get(), H5D_CONTIGUOUS) >= 0 &&
      H5Pset_alloc_time(datasets_.get(), H5D_ALLOC_TIME_EARLY) >= 0 &&
      H5Pset_fill_time(datasets_.get(), H5D_FILL_TIME_NEVER) >= 0;
  return good ? Status() : hdf5_error("cannot set HDF5 properties");
}

Status FileMaker::add_metadata(const std::string& metadata) {
  if (metadata.empty()) return {};
  return write_string_attribute(file_, "shardwright_metadata", metadata);
}

Status FileMaker::ensure_group(const std::string& path) {
  if (path.empty() || !made_.insert(path).second) return {};
  SHARDWRIGHT_TRY(ensure_group(std::string(parent_path(path))));
  Hdf5Group group(H5Gcreate2(file_, path.c_str(), links_.get(), groups_.get(), H5P_DEFAULT));
  if (!group.ok()) return hdf5_error("cannot make the HDF5 group '" + path + "'");
  auto label = labels_.find(path);
  if (label == labels_.end()) return {};
  SHARDWRIGHT_TRY(write_string_attribute(group.get(), "name", label->second));
  labels_.erase(label);
  return {};
}

Result<Hdf5Dataset> FileMaker::create(const Catalog::Spec& spec, const std::string& path) {
  auto stored = hdf5_type_of(spec.dtype);
  std::vector<hsize_t> shape(spec.shape.begin(), spec.shape.end());
  if (stored.shaped) shape = {spec.nbytes()};
  if (shape.size() > H5S_MAX_RANK)
    return fail(Code::kUnsupported, "HDF5 has no datasets of more than 32 dimensions")
        .with_found(shape_text(spec.shape));
  Hdf5Space space(shape.empty() ? H5Screate(H5S_SCALAR)
                                : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
  Hdf5Dataset dataset(
      H5Dcreate2(file_, path.c_str(), stored.type.get(), space.get(), links_.get(), datasets_.get(), H5P_DEFAULT));
  if (!dataset.ok()) return hdf5_error("cannot make the HDF5 dataset '" + path + "'");
  if (stored.named)
    SHARDWRIGHT_TRY(write_string_attribute(dataset.get(), "dtype", std::string(dtype_row(spec.dtype).numpy_name)));
  if (stored.shaped)
    SHARDWRIGHT_TRY(write_integers_attribute(dataset.get(), "shape", {spec.shape.begin(), spec.shape.end()}));
  return dataset;
}

Status FileMaker::add_link(const Hdf5Plan::Name& name, const std::string& target) {
  auto group_path = std::string(parent_path(name.path));
  SHARDWRIGHT_TRY(ensure_group(group_path));
  if (H5Lcreate_hard(file_, target.c_str(), file_, name.path.c_str(), links_.get(), H5P_DEFAULT) < 0)
    return hdf5_error("cannot make the HDF5 link '" + name.path + "'");
  if (name.path == name.name) return {};
  Hdf5Group group(H5Gopen2(file_, group_path.c_str(), H5P_DEFAULT));
  return write_name_attribute(group.get(), name.name);
}

Result<uint64_t> FileMaker::add(const Hdf5Plan& plan) {
  auto spec = want_.spec(plan.tensor);
  const auto& first = plan.names.front();
  SHARDWRIGHT_TRY(ensure_group(std::string(parent_path(first.path))));
  SHARDWRIGHT_ASSIGN(auto dataset, create(spec, first.path));
  if (first.path != first.name) SHARDWRIGHT_TRY(write_name_attribute(dataset.get(), first.name));
  for (size_t i = 1; i < plan.names.size(); ++i) SHARDWRIGHT_TRY(add_link(plan.names[i], first.path));
  if (spec.nbytes() == 0) return kUnknown;
  haddr_t offset = H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF) return hdf5_error("HDF5 did not allocate '" + first.path + "'");
  return offset;
}

Status FileMaker::add_empty_groups(std::span<const Hdf5Plan> plans) {
  if (labels_.empty()) return {};
  std::unordered_set<std::string> datasets;
  for (const auto& plan : plans)
    for (const auto& name : plan.names) datasets.insert(name.path);
  std::vector<std::string> groups;
  for (const auto& [group, label] : labels_) {
    bool free = escape_for_hdf5(group) == group;
    for (std::string above = group; free && !above.empty(); above = parent_path(above))
      free = !datasets.contains(above);
    if (free) groups.push_back(group);
  }
  for (const auto& group : groups) SHARDWRIGHT_TRY(ensure_group(group));
  return {};
}

/// Small files keep the library's 2 KiB blocks, as Keras's have; large ones get their metadata together, so that opening them does not
/// touch every megabyte. At most an eighth of the metadata is wasted.
uint64_t meta_block_bytes(std::span<const Hdf5Plan> plans) {
  uint64_t names = 0;
  for (const auto& plan : plans) names += plan.names.size();
  uint64_t estimate = 600 * plans.size() + 1200 * names;
  if (estimate < MiB) return 0;
  uint64_t block = 128 * KiB;
  while (block < 8 * MiB && block * 8 <= estimate) block *= 2;
  return block;
}

}  // namespace

Result<Hdf5Layout> Hdf5Layout::make(const Catalog& want, std::span<const Hdf5Plan> plans, Hdf5Labels& labels,
                                    const std::string& metadata, bool empty_groups) {
  // The library refusing what we ask of it is no corrupt file.
  auto internal = [](Error error) {
    if (error.code == Code::kCorrupt) error.code = Code::kInternal;
    return error;
  };
  Hdf5Lock lock;
  Hdf5Layout layout;
  auto recorder = Hdf5Recorder::create(meta_block_bytes(plans));
  if (!recorder.ok()) return internal(std::move(recorder.error()));
  {
    FileMaker maker(want, recorder->file(), labels);
    if (auto status = maker.prepare(); !status.ok()) return internal(std::move(status.error()));
    if (auto status = maker.add_metadata(metadata); !status.ok()) return internal(std::move(status.error()));
    for (const auto& plan : plans) {
      auto offset = maker.add(plan);
      if (!offset.ok()) return internal(std::move(offset.error())).at_tensor(std::string(want.spec(plan.tensor).name));
      layout.payloads_.push_back({*offset, want.spec(plan.tensor).nbytes(), plan.tensor});
    }
    if (empty_groups)
      if (auto status = maker.add_empty_groups(plans); !status.ok()) return internal(std::move(status.error()));
  }
  auto recording = recorder->finish();
  if (!recording.ok()) return internal(std::move(recording.error()));
  layout.recording_ = std::move(*recording);
  for (auto& payload : layout.payloads_)
    if (payload.offset == kUnknown) payload.offset = layout.size();
  std::stable_sort(layout.payloads_.begin(), layout.payloads_.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return layout;
}

void Hdf5Layout::append_literals(std::vector<Segment>& out, uint64_t from, uint64_t to, uint64_t base) const {
  constexpr auto kPage = Hdf5Recording::kPageBytes;
  for (auto page = recording_.pages.lower_bound(from / kPage);
       page != recording_.pages.end() && page->first * kPage < to; ++page) {
    uint64_t start = std::max(from, page->first * kPage), end = std::min(to, (page->first + 1) * kPage);
    View bytes = View(page->second).subspan(start % kPage, end - start);
    out.push_back({.type = Segment::kLiteral, .offset = base + start, .length = end - start, .literal = bytes});
  }
}

std::vector<Segment> Hdf5Layout::segments(uint64_t base) const {
  std::vector<Segment> out;
  uint64_t at = 0;
  for (const auto& payload : payloads_) {
    append_literals(out, at, payload.offset, base);
    out.push_back({.type = Segment::kPayload,
                   .tensor = payload.tensor,
                   .offset = base + payload.offset,
                   .length = payload.length});
    at = payload.offset + payload.length;
  }
  append_literals(out, at, size(), base);
  return out;
}

}  // namespace shardwright
