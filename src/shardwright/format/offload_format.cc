#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "shardwright/base/text.h"
#include "shardwright/format/format.h"
#include "shardwright/format/hub_set.h"
#include "shardwright/format/offload_draft.h"
#include "shardwright/format/offload_index.h"
#include "shardwright/format/safetensors_file.h"
#include "shardwright/format/side_files.h"

namespace shardwright {
namespace {

constexpr uint64_t kLookBytes = 4 * KiB;

Confidence sniff(Store& store, std::string_view at) {
  if (!at.empty() && at != kOffloadIndex) return Confidence::kNo;
  auto size = store.size(kOffloadIndex);
  if (!size.ok() || !*size) return Confidence::kNo;
  Bytes head(std::min(kLookBytes, **size));
  ReadOp op{kOffloadIndex, 0, head};
  if (!store.read({&op, 1}).ok() || !looks_like_offload_index(text_of(head))) return Confidence::kNo;
  // A model of the standard name in the same directory is what the directory is about.
  bool model =
      at.empty() && (has_object(store, "model.safetensors.index.json") || has_object(store, "model.safetensors"));
  return model ? Confidence::kMagic : Confidence::kCertain;
}

Result<std::vector<OffloadEntry>> read_index(Store& store, const OpenOptions& options) {
  auto place = [&](Error error) {
    if (error.path.empty()) error.path = store.describe(kOffloadIndex);
    return error;
  };
  SHARDWRIGHT_ASSIGN(auto text,
                     read_object(store, kOffloadIndex, std::min(kMaxOffloadIndex, options.max_metadata_bytes)));
  auto entries =
      parse_offload_index(text_of(text), [&](Error error) { return options.report(place(std::move(error))); });
  if (!entries.ok()) return place(std::move(entries.error()));
  return entries;
}

/// The files that entries point into: each is opened once, and what they want of it is kept.
class PointedFiles {
 public:
  PointedFiles(Store& store, const OpenOptions& options) : store_(store), options_(options) {}

  struct Found {
    ObjectId object;
    DType stored;
    std::vector<int64_t> shape;
    uint64_t offset, length;
  };

  /// Reads the headers. Files that are wrong are reported, once each.
  Status read(const std::vector<OffloadEntry>& entries, CatalogBuilder& builder) {
    std::vector<std::string> keys;
    for (const auto& entry : entries) {
      if (entry.own_file()) continue;
      auto key = key_of(entry.safetensors_file);
      if (!key.ok()) {
        auto error = std::move(key.error()).at_path(store_.describe(kOffloadIndex)).at_tensor(entry.name);
        SHARDWRIGHT_TRY(options_.report(std::move(error)));
        continue;
      }
      keys_.try_emplace(entry.safetensors_file, *key);
      auto [file, first] = files_.try_emplace(*key);
      if (first) keys.push_back(*key);
      file->second.wanted.try_emplace(entry.weight_name);
    }
    size_t next = 0;
    auto each = [&](Result<SafetensorsFile> file) {
      auto& kept = files_.at(keys[next++]);
      if (!file.ok()) return options_.report(std::move(file.error()));
      kept.read = true;
      ObjectId object = builder.add_object({file->key, file->size});
      auto tensor = [&](const SafetensorsEntry& found) -> Status {
        auto want = kept.wanted.find(found.name);
        if (want != kept.wanted.end())
          want->second = Found{object,
                               found.dtype,
                               {found.shape.begin(), found.shape.end()},
                               file->data_begin() + found.begin,
                               found.end - found.begin};
        return {};
      };
      return file->visit(store_, tensor, [&](Error error) { return options_.report(std::move(error)); });
    };
    return read_safetensors_files(store_, keys, options_.max_metadata_bytes, each);
  }

  /// nullptr: its file was reported. Errors: kNotFound: the file has no such tensor.
  Result<const Found*> find(const OffloadEntry& entry) const {
    auto at = keys_.find(entry.safetensors_file);
    if (at == keys_.end()) return static_cast<const Found*>(nullptr);
    const auto& key = at->second;
    const auto& file = files_.at(key);
    const auto& found = file.wanted.at(entry.weight_name);
    if (found) return &*found;
    if (!file.read) return static_cast<const Found*>(nullptr);
    return fail(Code::kNotFound, "the file that the index names for it has no such tensor")
        .at_path(store_.describe(key))
        .with_expected("a tensor '" + entry.weight_name + "'");
  }

 private:
  struct File {
    bool read = false;
    std::map<std::string, std::optional<Found>, std::less<>> wanted;
  };

  /// As accelerate takes a path: below the working directory; where there is no such file, below the folder.
  Result<std::string> key_of(const std::string& path) {
    if (path.find('\0') != path.npos) return fail(Code::kCorrupt, "a path holds a NUL byte");
    auto key = store_.attach(path);
    if (key.ok() && has_object(store_, *key)) return key;
    if (is_safe_relative_path(path) && has_object(store_, path)) return path;
    return key.ok() ? std::move(key) : std::move(key.error());
  }

  Store& store_;
  const OpenOptions& options_;
  std::map<std::string, std::string> keys_;  ///< by path as given
  std::map<std::string, File> files_;        ///< by key
};

class Opening {
 public:
  Opening(Store& store, const OpenOptions& options) : store_(store), options_(options), pointed_(store, options) {}

  Result<Catalog> run(bool directory) {
    SHARDWRIGHT_ASSIGN(auto entries, read_index(store_, options_));
    SHARDWRIGHT_TRY(pointed_.read(entries, builder_));
    std::vector<std::string> members = {std::string(kOffloadIndex)};
    for (const auto& entry : entries) {
      auto status = entry.own_file() ? add_own(entry, members) : add_pointed(entry);
      if (status.ok()) continue;
      Error& error = status.error();
      error.tensor = entry.name;
      if (error.path.empty()) error.path = store_.describe(kOffloadIndex);
      SHARDWRIGHT_TRY(options_.report(std::move(error)));
    }
    builder_.tie_equal_extents();
    builder_.set_members(std::move(members), 1);
    if (directory) {
      SHARDWRIGHT_ASSIGN(auto side_files, find_side_files(store_));
      for (auto& side : side_files)
        if (side.name != kOffloadIndex) builder_.add_side_file(std::move(side));
    }
    return builder_.build();
  }

 private:
  Status add_own(const OffloadEntry& entry, std::vector<std::string>& members) {
    std::string key = entry.file();
    if (!is_safe_relative_path(key))
      return fail(Code::kCorrupt, "the name leads out of the folder").with_found("'" + key + "'");
    SHARDWRIGHT_ASSIGN(auto size, store_.size(key));
    if (!size) return fail(Code::kNotFound, "the tensor's file is missing").at_path(store_.describe(key));
    members.push_back(key);
    auto elements = element_count(entry.shape);
    auto bytes = elements ? bytes_of_elements(*entry.dtype, *elements) : std::nullopt;
    auto wanted = [&] {
      return fmt::format("{} bytes for {} of {}", bytes ? fmt::to_string(*bytes) : "more than 2^64",
                         shape_text(entry.shape), dtype_row(*entry.dtype).name);
    };
    if (!bytes || *size < *bytes)
      return fail(Code::kCorrupt, "the file is shorter than the index says")
          .at_path(store_.describe(key))
          .with_found(fmt::format("{} bytes", *size))
          .with_expected(wanted())
          .with_hint("the index may be of another model: accelerate does not write a folder anew that has one");
    // NumPy cannot map nothing, so that accelerate leaves a byte for tensors without elements.
    if (*size > std::max<uint64_t>(*bytes, 1))
      options_.remark(fail(Code::kCorrupt, "the file is longer than the index says")
                          .at_path(store_.describe(key))
                          .at_tensor(entry.name)
                          .with_found(fmt::format("{} bytes", *size))
                          .with_expected(wanted()));
    SHARDWRIGHT_TRY(builder_.add_tensor(entry.name, *entry.dtype, entry.shape));
    ObjectId object = builder_.add_object({key, *size});
    return builder_.add_flat({Place::kExtent, -1, object, 0, *bytes}, *entry.dtype);
  }

  Status add_pointed(const OffloadEntry& entry) {
    SHARDWRIGHT_ASSIGN(const auto* found, pointed_.find(entry));
    if (found == nullptr) return {};
    DType dtype = entry.dtype.value_or(found->stored);
    if (dtype != found->stored &&
        (dtype_row(dtype).kind != Kind::kFloat || dtype_row(found->stored).kind != Kind::kFloat))
      return fail(Code::kUnsupported, "the index asks for a cast that is none of floating types")
          .with_found(std::string(dtype_row(found->stored).name))
          .with_expected(std::string(dtype_row(dtype).name));
    SHARDWRIGHT_TRY(builder_.add_tensor(entry.name, dtype, found->shape));
    return builder_.add_flat({Place::kExtent, -1, found->object, found->offset, found->length}, found->stored);
  }

  Store& store_;
  const OpenOptions& options_;
  PointedFiles pointed_;
  CatalogBuilder builder_;
};

Result<Catalog> open(Store& store, std::string_view at, const OpenOptions& options) {
  return Opening(store, options).run(at.empty());
}

/// The index and the files beside it that are its own; never those that it points into.
std::vector<std::string> members(Store& store, std::string_view) {
  std::vector<std::string> out;
  if (!has_object(store, kOffloadIndex)) return out;
  out.emplace_back(kOffloadIndex);
  auto text = read_object(store, kOffloadIndex, kMaxOffloadIndex);
  if (!text.ok()) return out;
  auto entries = parse_offload_index(text_of(*text), [](const Error&) { return Status(); });
  if (!entries.ok()) return out;
  for (const auto& entry : *entries)
    if (entry.own_file() && is_safe_relative_path(entry.file()) && has_object(store, entry.file()))
      out.push_back(entry.file());
  return out;
}

}  // namespace

const Format kOffload = {
    .name = "offload",
    .description = "folder that accelerate offloads to: one file a tensor, or pointers into safetensors files",
    .extensions = "directory with index.json and *.dat",
    .can = {.write = true, .sharded = true, .ties = false, .metadata = false, .subbyte = false},
    .sniff = sniff,
    .open = open,
    .members = members,
    .draft = draft_offload,
};

}  // namespace shardwright
