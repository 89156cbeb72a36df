#include "shardwright/format/hdf5_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "shardwright/base/json.h"
#include "shardwright/base/text.h"
#include "shardwright/format/hdf5_types.h"
#include "shardwright/format/keras_names.h"

namespace shardwright {
namespace {

constexpr size_t kMaxLinks = 4'000'000, kMaxDepth = 256, kMaxPathBytes = 64 * KiB;

struct Link {
  std::string name;
  H5L_type_t type;
  haddr_t address;
};

struct LinkList {
  std::vector<Link> links;
  size_t room;
};

herr_t collect_link(hid_t, const char* name, const H5L_info_t* info, void* out) {
  auto& list = *static_cast<LinkList*>(out);
  if (list.links.size() >= list.room) return 1;
  list.links.push_back({name, info->type, info->type == H5L_TYPE_HARD ? info->u.address : HADDR_UNDEF});
  return 0;
}

class Walker {
 public:
  Walker(const Hdf5Input& input, const Hdf5Region& region, const OpenOptions& options)
      : input_(input), path_(region.store->describe(region.key)), size_(region.size), options_(options) {}

  Result<Hdf5Contents> walk();

 private:
  Status visit_group(hid_t group, uint64_t address, const std::string& path, size_t depth);
  Result<std::vector<Link>> list_links(hid_t group);
  Status visit_link(const Link& link, const std::string& path, uint32_t group, size_t depth);
  Status check_link(const Link& link) const;
  Status add_dataset(hid_t dataset, const Link& link, const std::string& path, uint32_t group);
  Status add_name(const Link& link, const std::string& path, uint32_t group);
  Status read_group_attributes(hid_t group, Hdf5GroupInfo& info);
  /// attribute: the dataset's own `shardwright_name`.
  std::string name_of(const std::optional<std::string>& attribute, const std::string& path, uint32_t group) const;
  Status check_extents(const Hdf5Tensor& tensor) const;
  Status check_overlaps();
  void sort_as_written();
  Error located(Error error, const std::string& path) const {
    if (error.path.empty()) error.path = path_;
    if (error.tensor.empty()) error.tensor = path;
    return error;
  }

  const Hdf5Input& input_;
  std::string path_;
  uint64_t size_;
  const OpenOptions& options_;
  Hdf5Contents contents_;
  size_t links_seen_ = 0;
  std::unordered_map<uint64_t, std::string> group_paths_;  // by address
  struct Seen {
    size_t index;  // in contents_.tensors
    std::optional<std::string> name;
  };
  std::unordered_map<uint64_t, Seen> datasets_;  // by address
  std::unordered_set<uint64_t> skipped_;         // datasets that are no tensors, or broken and already reported
};

Result<std::vector<Link>> Walker::list_links(hid_t group) {
  LinkList list{{}, kMaxLinks - links_seen_};
  herr_t ended = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect_link, &list);
  if (ended < 0) return input_.error("cannot list an HDF5 group");
  if (ended > 0) return fail(Code::kUnsupported, fmt::format("more than {} links in one HDF5 file", kMaxLinks));
  links_seen_ += list.links.size();
  return std::move(list.links);
}

Status Walker::check_link(const Link& link) const {
  if (link.type == H5L_TYPE_SOFT || link.type == H5L_TYPE_EXTERNAL || link.type != H5L_TYPE_HARD) {
    auto kind = link.type == H5L_TYPE_SOFT       ? "soft link"
                : link.type == H5L_TYPE_EXTERNAL ? "external link"
                                                 : "user-defined link";
    return fail(Code::kUnsupported, fmt::format("{}s are not followed: they may lead anywhere", kind))
        .with_found(kind)
        .with_expected("a group or dataset of this file")
        .with_hint("copy what it names into the file, e.g. with `h5copy`");
  }
  if (link.name.empty() || link.name == "." || link.name.find('/') != std::string::npos)
    return fail(Code::kCorrupt, "link with a name that no path can have").with_found("'" + link.name + "'");
  return {};
}

Status Walker::read_group_attributes(hid_t group, Hdf5GroupInfo& info) {
  if (!is_vars_group(info.path)) return {};
  SHARDWRIGHT_ASSIGN(auto label, read_string_attribute(input_, group, "name"));
  info.label = label.value_or("");
  SHARDWRIGHT_ASSIGN(auto name, read_name_attribute(input_, group));
  info.tensor_name = std::move(name);
  return {};
}

Status Walker::visit_group(hid_t group, uint64_t address, const std::string& path, size_t depth) {
  auto [seen, fresh] = group_paths_.try_emplace(address, path);
  if (!fresh) {
    bool cycle = path.size() > seen->second.size() && path.starts_with(seen->second) &&
                 (seen->second.empty() || path[seen->second.size()] == '/');
    return options_.report(located(
        fail(cycle ? Code::kCorrupt : Code::kUnsupported, cycle ? "group that contains itself" : "group with two names")
            .with_found("also '/" + seen->second + "'"),
        path));
  }
  if (depth > kMaxDepth || path.size() > kMaxPathBytes)
    return options_.report(located(
        fail(Code::kUnsupported, fmt::format("groups nested deeper than {} levels", kMaxDepth)), path.substr(0, 200)));
  Hdf5GroupInfo info{path, address, {}, {}, 0};
  if (auto status = read_group_attributes(group, info); !status.ok())
    SHARDWRIGHT_TRY(options_.report(located(status.error(), path)));
  auto index = static_cast<uint32_t>(contents_.groups.size());
  contents_.groups.push_back(std::move(info));
  auto links = list_links(group);
  if (!links.ok()) return options_.report(located(links.error(), path));
  for (const auto& link : *links)
    SHARDWRIGHT_TRY(visit_link(link, path.empty() ? link.name : path + "/" + link.name, index, depth));
  return {};
}

Status Walker::visit_link(const Link& link, const std::string& path, uint32_t group, size_t depth) {
  if (auto status = check_link(link); !status.ok()) return options_.report(located(status.error(), path));
  if (skipped_.contains(link.address)) return {};
  if (datasets_.contains(link.address)) return add_name(link, path, group);
  Hdf5Object object(H5Oopen_by_addr(input_.file(), link.address));
  if (!object.ok()) return options_.report(located(input_.error("cannot open an HDF5 object"), path));
  switch (H5Iget_type(object.get())) {
    case H5I_GROUP: return visit_group(object.get(), link.address, path, depth + 1);
    case H5I_DATASET: return add_dataset(object.get(), link, path, group);
    default: return {};  // a named type
  }
}

/// A second hard link to a dataset.
Status Walker::add_name(const Link& link, const std::string& path, uint32_t group) {
  const auto& seen = datasets_.at(link.address);
  const auto& first = contents_.tensors[seen.index];
  Hdf5Tensor tensor;
  tensor.path = path;
  tensor.group = group;
  tensor.address = link.address;
  tensor.dtype = first.dtype;
  tensor.shape = first.shape;
  tensor.again = true;
  tensor.name = name_of(seen.name, path, group);
  contents_.tensors.push_back(std::move(tensor));
  return {};
}

std::string Walker::name_of(const std::optional<std::string>& attribute, const std::string& path,
                            uint32_t group) const {
  const auto& of_group = contents_.groups[group].tensor_name;
  if (of_group && path.ends_with("/0")) return *of_group;
  return attribute.value_or(path);
}

Status Walker::add_dataset(hid_t dataset, const Link& link, const std::string& path, uint32_t group) {
  Hdf5Tensor tensor;
  auto skipped = read_hdf5_dataset(input_, dataset, tensor, options_.opaque_as_bytes);
  if (!skipped.ok() || *skipped) skipped_.insert(link.address);
  if (!skipped.ok()) return options_.report(located(skipped.error(), path));
  if (*skipped) {
    options_.remark(located(fail(Code::kUnsupported, "not a tensor, left out").with_found((*skipped)->text), path));
    return {};
  }
  if (auto status = check_extents(tensor); !status.ok()) {
    skipped_.insert(link.address);
    return options_.report(located(status.error(), path));
  }
  tensor.path = path;
  tensor.group = group;
  tensor.address = link.address;
  auto name = read_name_attribute(input_, dataset);
  if (!name.ok()) return options_.report(located(name.error(), path));
  tensor.name = name_of(*name, path, group);
  auto& last = contents_.groups[group].last_address;
  last = std::max<uint64_t>(last, link.address);
  datasets_.emplace(link.address, Seen{contents_.tensors.size(), std::move(*name)});
  contents_.tensors.push_back(std::move(tensor));
  return {};
}

Status Walker::check_extents(const Hdf5Tensor& tensor) const {
  auto inside = [&](uint64_t offset, uint64_t length) -> Status {
    auto end = checked_add(offset, length);
    if (end && *end <= size_) return {};
    return fail(Code::kCorrupt, "dataset lies beyond the end of the file")
        .at_offset(offset)
        .with_found(fmt::format("a file of {} bytes", size_))
        .with_expected(end ? fmt::format("at least {} bytes", *end) : "an offset that fits 64 bits");
  };
  if (tensor.storage == Hdf5Tensor::kExtent) return inside(tensor.offset, tensor.length);
  for (const auto& chunk : tensor.chunks)
    if (chunk.length > 0) SHARDWRIGHT_TRY(inside(chunk.offset, chunk.length));
  return {};
}

/// No two datasets may claim the same bytes.
Status Walker::check_overlaps() {
  std::vector<const Hdf5Tensor*> extents;
  for (const auto& tensor : contents_.tensors)
    if (tensor.storage == Hdf5Tensor::kExtent && !tensor.again && tensor.length > 0) extents.push_back(&tensor);
  std::sort(extents.begin(), extents.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < extents.size(); ++i) {
    const auto &before = *extents[i - 1], &after = *extents[i];
    if (before.offset + before.length <= after.offset) continue;
    SHARDWRIGHT_TRY(
        options_.report(located(fail(Code::kCorrupt, "dataset overlaps '" + before.path + "'")
                                    .at_offset(after.offset)
                                    .with_found(std::to_string(after.offset))
                                    .with_expected(fmt::format("at least {}", before.offset + before.length)),
                                after.path)));
  }
  return {};
}

/// HDF5 lists names in alphabetical order ("0", "1", "10", "2"), and allocates data in blocks by size. Object headers come one after the
/// other as a writer goes on, but for small ones that fill an earlier gap; the last header of a group is in order in all files of Keras.
void Walker::sort_as_written() {
  const auto& groups = contents_.groups;
  auto key = [](const Hdf5Tensor& tensor) {
    auto last = std::string_view(tensor.path).substr(tensor.path.rfind('/') + 1);
    bool counted = is_decimal(last);
    return std::tuple(!counted, counted ? last.size() : tensor.address, last);
  };
  auto less = [&](const Hdf5Tensor& a, const Hdf5Tensor& b) {
    if (a.group == b.group) return key(a) < key(b);
    const auto &left = groups[a.group], &right = groups[b.group];
    return std::tuple(left.last_address, left.address, a.group) <
           std::tuple(right.last_address, right.address, b.group);
  };
  std::sort(contents_.tensors.begin(), contents_.tensors.end(), less);
}

Result<Hdf5Contents> Walker::walk() {
  Hdf5Group root(H5Gopen2(input_.file(), "/", H5P_DEFAULT));
  H5O_info_t info{};
  if (!root.ok() || H5Oget_info2(root.get(), &info, H5O_INFO_BASIC) < 0)
    return located(input_.error("cannot open the root group"), "");
  auto metadata = read_string_attribute(input_, root.get(), "shardwright_metadata");
  if (!metadata.ok()) return located(std::move(metadata.error()), "");
  SHARDWRIGHT_TRY(visit_group(root.get(), info.addr, "", 0));
  contents_.metadata = metadata->value_or("");
  // A tie's group has no dataset of its own to date it.
  for (const auto& tensor : contents_.tensors) {
    auto& last = contents_.groups[tensor.group].last_address;
    last = std::max(last, tensor.address);
  }
  SHARDWRIGHT_TRY(check_overlaps());
  sort_as_written();
  return std::move(contents_);
}

Status check_whole(const Hdf5Region& region) {
  SHARDWRIGHT_ASSIGN(auto superblock, find_hdf5_superblock(region));
  if (!superblock) return fail(Code::kCorrupt, "not an HDF5 file: no signature");
  if (superblock->end > region.size)
    return fail(Code::kCorrupt, "truncated HDF5 file")
        .with_found(fmt::format("{} bytes", region.size))
        .with_expected(fmt::format("{} bytes, as its superblock says", superblock->end));
  return {};
}

}  // namespace

Result<Hdf5Contents> read_hdf5(const Hdf5Region& region, const OpenOptions& options) {
  auto place = region.store->describe(region.key);
  if (auto whole = check_whole(region); !whole.ok()) return std::move(whole.error()).at_path(place);
  Hdf5Lock lock;
  auto input = Hdf5Input::open(region, options.max_metadata_bytes);
  if (!input.ok()) return std::move(input.error()).at_path(place);
  return Walker(*input, region, options).walk();
}

Status add_hdf5_tensors(CatalogBuilder& builder, const Hdf5Contents& contents, const Hdf5Region& region,
                        ObjectId object, const OpenOptions& options) {
  std::unordered_map<uint64_t, TensorId> kept;  // by address
  std::unordered_map<uint64_t, const Hdf5Tensor*> stored;
  for (const auto& tensor : contents.tensors)
    if (!tensor.again) stored.emplace(tensor.address, &tensor);
  for (const auto& tensor : contents.tensors) {
    auto id = builder.add_tensor(tensor.name, tensor.dtype, tensor.shape);
    if (!id.ok()) {
      SHARDWRIGHT_TRY(options.report(std::move(id.error()).at_path(region.store->describe(region.key))));
      continue;
    }
    auto [first, fresh] = kept.try_emplace(tensor.address, *id);
    if (!fresh) {
      builder.tie(*id, first->second);
      continue;
    }
    auto status = add_hdf5_pieces(builder, *stored.at(tensor.address), object, region.offset);
    if (!status.ok()) return std::move(status.error()).at_path(region.store->describe(region.key));
  }
  return {};
}

void set_hdf5_values(CatalogBuilder& builder, std::span<const Hdf5Contents> files) {
  std::string names;
  std::unordered_set<std::string_view> seen;  // a layer cut over two shards has its label in one or both
  for (const auto& contents : files)
    for (const auto& group : contents.groups)
      if (!group.label.empty() && seen.insert(group.path).second)
        names += (names.empty() ? "{" : ", ") + json_quote(group.path) + ": " + json_quote(group.label);
  if (!names.empty()) builder.set_value("keras.names", {Value::kJson, names + "}"});
  if (files.size() != 1 || files[0].metadata.empty()) return;
  auto metadata = parse_json(files[0].metadata);
  if (metadata.ok() && metadata->is_object()) builder.set_value("metadata", {Value::kJson, files[0].metadata});
}

Result<Catalog> hdf5_catalog(const Hdf5Contents& contents, const Hdf5Region& region, const OpenOptions& options,
                             std::vector<Catalog::SideFile> side_files) {
  CatalogBuilder builder;
  SHARDWRIGHT_ASSIGN(auto object_size, region.store->size(region.key));
  auto object = builder.add_object({region.key, object_size.value_or(region.offset + region.size)});
  SHARDWRIGHT_TRY(add_hdf5_tensors(builder, contents, region, object, options));
  set_hdf5_values(builder, {&contents, 1});
  builder.set_members({region.key}, 1);
  for (auto& file : side_files) builder.add_side_file(std::move(file));
  auto catalog = builder.build();
  if (!catalog.ok()) return std::move(catalog.error()).at_path(region.store->describe(region.key));
  return catalog;
}

}  // namespace shardwright
