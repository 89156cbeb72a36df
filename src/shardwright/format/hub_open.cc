#include "shardwright/format/hub_open.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "shardwright/base/checksum.h"
#include "shardwright/base/text.h"
#include "shardwright/format/hub_index.h"
#include "shardwright/format/hub_shards.h"
#include "shardwright/format/side_files.h"

namespace shardwright {
namespace {

using Line = HubLines::Line;
constexpr size_t kMostFindings = 100;  // of one kind; a stale index can differ in every line

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return out;
}

/// Names of the lines of the index whose hash is in `wanted` (sorted): they were not kept.
Result<std::vector<std::string>> names_of(Store& store, const HubSet& set, std::span<const Line> wanted,
                                          const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto text, read_object(store, set.index, options.max_metadata_bytes));
  std::vector<std::string> names(wanted.size());
  SHARDWRIGHT_TRY(parse_hub_index(
      text_of(text),
      [&](std::string_view name, uint32_t) {
        auto at = std::lower_bound(wanted.begin(), wanted.end(), HubLines::line_of(name, 0, 0));
        for (; at != wanted.end() && at->same_name(HubLines::line_of(name, 0, 0)); ++at)
          names[static_cast<size_t>(at - wanted.begin())] = name;
        return Status();
      },
      *set.kind));
  return names;
}

/// The index against the headers, both sides sorted by name hash.
class Comparison {
 public:
  Comparison(Store& store, const HubSet& set, const HubLines& index, std::span<const Line> headers,
             const Catalog& catalog)
      : store_(store), set_(set), index_(index), headers_(headers), catalog_(catalog) {}

  /// `whole`: per shard, whether its header could be read; nothing is said of tensors in the others.
  Status run(const std::vector<bool>& whole, const OpenOptions& options) {
    auto line = index_.lines.begin();
    auto header = headers_.begin();
    while (line != index_.lines.end() || header != headers_.end()) {
      bool only_index = header == headers_.end() || (line != index_.lines.end() && *line < *header);
      bool only_header = line == index_.lines.end() || (header != headers_.end() && *header < *line);
      if (only_index) {
        if (whole[line->shard]) note(not_found_, *line);
        ++line;
      } else if (only_header) {
        note(not_listed_, *header++);
      } else {
        if (line->shard != header->shard && whole[line->shard]) {
          note(elsewhere_, {{line->hash[0], line->hash[1]}, line->shard, header->id});
          where_.push_back(header->shard);
        }
        ++line;
        ++header;
      }
    }
    return tell(options);
  }

 private:
  struct Kind {
    size_t count = 0;
    std::vector<Line> lines;
  };
  static void note(Kind& kind, const Line& line) {
    if (++kind.count <= kMostFindings) kind.lines.push_back(line);
  }
  std::string file_name(uint32_t shard) const { return index_.shards[shard].substr(set_.prefix.size()); }

  Status tell(const OpenOptions& options) {
    if (not_found_.count + elsewhere_.count + not_listed_.count == 0) return {};
    std::vector<Error> errors;
    SHARDWRIGHT_ASSIGN(auto names, names_of(store_, set_, not_found_.lines, options));
    auto add = [&](const Kind& kind, size_t i, std::string message, std::string path, std::string tensor,
                   std::string found, std::string expected) {
      if (i + 1 == kMostFindings && kind.count > kMostFindings)
        message += fmt::format(" (and {} more such)", kind.count - kMostFindings);
      else if (i == 0 && kind.count > 1 && options.findings == nullptr)
        message += fmt::format(" (and {} more such)", kind.count - 1);
      errors.push_back(fail(Code::kCorrupt, std::move(message))
                           .at_path(std::move(path))
                           .at_tensor(std::move(tensor))
                           .with_found(std::move(found))
                           .with_expected(std::move(expected))
                           .with_hint("if the shards are right, `shardwright reindex` makes a new index"));
    };
    for (size_t i = 0; i < not_found_.lines.size(); ++i) {
      uint32_t shard = not_found_.lines[i].shard;
      add(not_found_, i, "the index lists a tensor that its shard lacks", store_.describe(index_.shards[shard]),
          names[i], "no such tensor in any shard", fmt::format("in {} by {}", file_name(shard), set_.index));
    }
    for (size_t i = 0; i < elsewhere_.lines.size(); ++i) {
      const auto& line = elsewhere_.lines[i];
      add(elsewhere_, i, "the index lists a tensor that its shard lacks", store_.describe(index_.shards[line.shard]),
          std::string(catalog_.spec(line.id).name), "in " + file_name(where_[i]),
          fmt::format("in {} by {}", file_name(line.shard), set_.index));
      errors.back().hint = "it is in " + file_name(where_[i]) + "; " + errors.back().hint;
    }
    for (size_t i = 0; i < not_listed_.lines.size(); ++i) {
      const auto& line = not_listed_.lines[i];
      add(not_listed_, i, "a shard holds a tensor that the index does not list",
          store_.describe(index_.shards[line.shard]), std::string(catalog_.spec(line.id).name),
          "in " + file_name(line.shard), "a line in " + set_.index);
    }
    for (auto& error : errors) SHARDWRIGHT_TRY(options.report(std::move(error)));
    return {};
  }

  Store& store_;
  const HubSet& set_;
  const HubLines& index_;
  std::span<const Line> headers_;
  const Catalog& catalog_;
  Kind not_found_, elsewhere_, not_listed_;
  std::vector<uint32_t> where_;  ///< per line of elsewhere_: the shard that has the tensor
};

/// Says which shards a name is in, when the catalogue refused it as given twice.
Error name_the_shards(Error error, Store& store, const HubLines& index, std::span<const Line> headers) {
  auto wanted = HubLines::line_of(error.tensor, 0, 0);
  auto [first, last] = std::equal_range(headers.begin(), headers.end(), wanted);
  if (last - first < 2) return error;
  error.path = store.describe(index.shards[(first + 1)->shard]);
  error.message = first->shard == (first + 1)->shard
                      ? "the header gives this tensor twice"
                      : "this tensor is also in " + store.describe(index.shards[first->shard]);
  return error;
}

void remark_total_size(Store& store, const HubSet& set, const Json& metadata, uint64_t data_bytes,
                       const OpenOptions& options) {
  auto given = metadata.find("total_size");
  if (given == metadata.end()) return;
  bool right = given->is_number_unsigned()
                   ? given->get<uint64_t>() == data_bytes
                   : given->is_number_float() && given->get<double>() == static_cast<double>(data_bytes);
  if (right) return;
  options.remark(fail(Code::kCorrupt, "total_size in the index is wrong; no reader depends on it")
                     .at_path(store.describe(set.index))
                     .with_found(given->dump().substr(0, 40))
                     .with_expected(fmt::format("{}", data_bytes))
                     .with_hint("`shardwright reindex` puts it right"));
}

Status remark_surplus(Store& store, const HubSet& set, const HubLines& index, const OpenOptions& options) {
  if (options.remarked() == nullptr) return {};
  SHARDWRIGHT_ASSIGN(auto keys, store.list(set.prefix));
  for (const auto& key : keys) {
    if (!is_shard_file_name(std::string_view(key).substr(set.prefix.size()), set.stem(), *set.kind)) continue;
    if (std::binary_search(index.shards.begin(), index.shards.end(), key)) continue;
    options.remark(fail(Code::kCorrupt, "a shard that the index does not name")
                       .at_path(store.describe(key))
                       .with_hint("left over from another save? `shardwright reindex` takes it in, or remove it"));
  }
  return {};
}

Status add_side_files(CatalogBuilder& builder, Store& store) {
  SHARDWRIGHT_ASSIGN(auto side_files, find_side_files(store));
  for (auto& side : side_files) builder.add_side_file(std::move(side));
  return {};
}

}  // namespace

Line HubLines::line_of(std::string_view name, uint32_t shard, TensorId id) {
  auto hash = xxh3_128(view_of(name));
  Line line{{}, shard, id};
  std::memcpy(line.hash, hash.bytes.data(), sizeof line.hash);
  return line;
}

Result<HubLines> HubLines::read(Store& store, const HubSet& set, const OpenOptions& options) {
  auto place = [&](Error error) {
    if (error.path.empty() || error.path == set.index) error.path = store.describe(set.index);
    return error;
  };
  auto text = read_object(store, set.index, options.max_metadata_bytes);
  if (!text.ok()) return place(std::move(text.error()));
  HubLines out;
  auto parsed = parse_hub_index(
      text_of(*text),
      [&](std::string_view name, uint32_t file) {
        out.lines.push_back(line_of(name, file, kNoTensor));
        return Status();
      },
      *set.kind);
  if (!parsed.ok()) {
    auto kind = describe_magic(text_of(*text).substr(0, 512));
    if (!kind.empty() && kind != "a JSON text") parsed.error().message = "not an index but " + kind;
    return place(std::move(parsed.error()));
  }
  *text = {};
  out.metadata = std::move(parsed->metadata);
  out.name_bytes = parsed->name_bytes;
  if (parsed->odd_metadata)
    options.remark(place(fail(Code::kCorrupt, "metadata of the index is not an object; left out")));
  // Shards in sorted order: the order of load_file over them is the order of the catalogue.
  std::vector<uint32_t> order(parsed->files.size()), rank(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return parsed->files[a] < parsed->files[b]; });
  for (uint32_t i = 0; i < order.size(); ++i) {
    rank[order[i]] = i;
    out.shards.push_back(set.prefix + parsed->files[order[i]]);
    SHARDWRIGHT_ASSIGN(auto size, store.size(out.shards.back()));
    out.present.push_back(size.has_value());
  }
  for (auto& line : out.lines) line.shard = rank[line.shard];
  std::sort(out.lines.begin(), out.lines.end());
  auto twice = std::adjacent_find(out.lines.begin(), out.lines.end(),
                                  [](const Line& a, const Line& b) { return a.same_name(b); });
  if (twice != out.lines.end()) {
    SHARDWRIGHT_ASSIGN(auto names, names_of(store, set, {&*twice, 1}, options));
    SHARDWRIGHT_TRY(options.report(place(fail(Code::kCorrupt, "the index lists a tensor twice").at_tensor(names[0]))));
    out.lines.erase(
        std::unique(out.lines.begin(), out.lines.end(), [](const Line& a, const Line& b) { return a.same_name(b); }),
        out.lines.end());
  }
  return out;
}

std::vector<std::string> HubLines::missing(const HubSet& set) const {
  std::vector<std::string> out;
  for (size_t i = 0; i < shards.size(); ++i)
    if (!present[i]) out.push_back(shards[i].substr(set.prefix.size()));
  return out;
}

namespace {

/// What all shards that are there hold, into the catalogue, and their names as lines, sorted. `whole`: false where something was found.
Result<std::vector<Line>> read_shards(const HubLines& index, HubFill& fill, std::vector<bool>& whole,
                                      const OpenOptions& options) {
  std::vector<Line> headers;
  headers.reserve(index.lines.size());
  std::vector<std::string> keys;
  std::vector<uint32_t> shard_of;
  for (uint32_t i = 0; i < index.shards.size(); ++i) {
    if (!index.present[i]) continue;
    keys.push_back(index.shards[i]);
    shard_of.push_back(i);
  }
  auto count = [&] { return options.findings == nullptr ? 0 : options.findings->size(); };
  size_t before = count();
  auto seen = [&](size_t file, std::string_view name, TensorId id) {
    headers.push_back(HubLines::line_of(name, shard_of[file], id));
  };
  auto done = [&](size_t file, Status status) -> Status {
    // Tensors that were skipped are not missing on top of it.
    if (!status.ok() || count() > before) whole[shard_of[file]] = false;
    if (!status.ok()) SHARDWRIGHT_TRY(options.report(std::move(status.error())));
    before = count();
    return {};
  };
  auto status = fill.add_files(keys, seen, done);
  if (!status.ok()) return std::move(status.error());
  std::sort(headers.begin(), headers.end());
  return headers;
}

void set_members(const HubSet& set, const HubLines& index, bool directory, CatalogBuilder& builder) {
  std::vector<std::string> members = {set.index};
  if (directory && !set.single.empty()) members.insert(members.begin(), set.single);
  size_t entries = members.size();
  for (size_t i = 0; i < index.shards.size(); ++i)
    if (index.present[i] && index.shards[i] != set.single) members.push_back(index.shards[i]);
  builder.set_members(std::move(members), entries);
}

Result<Catalog> open_set(Store& store, const HubSet& set, const HubLines& index, bool directory, HubFill& fill,
                         const OpenOptions& options) {
  if (auto missing = index.missing(set); !missing.empty())
    SHARDWRIGHT_TRY(options.report(
        fail(Code::kNotFound,
             fmt::format("{} of {} shards are missing: {}", missing.size(), index.shards.size(), join(missing)))
            .at_path(store.describe(set.index))
            .with_hint(
                "the download may not have finished; if the index is stale, `shardwright reindex` makes a new one")));
  fill.builder.reserve(index.lines.size(), index.name_bytes);
  set_members(set, index, directory, fill.builder);
  if (Json notes = index.metadata; !notes.empty()) {
    notes.erase("total_size");  // follows from the tensors
    fill.expect_notes(notes);
  }
  auto whole = index.present;
  SHARDWRIGHT_ASSIGN(auto headers, read_shards(index, fill, whole, options));
  SHARDWRIGHT_TRY(fill.finish());
  if (directory) SHARDWRIGHT_TRY(add_side_files(fill.builder, store));
  auto catalog = fill.builder.build();
  if (!catalog.ok()) return name_the_shards(std::move(catalog.error()), store, index, headers);
  SHARDWRIGHT_TRY(Comparison(store, set, index, headers, *catalog).run(whole, options));
  if (set.kind->total_is_exact && std::find(whole.begin(), whole.end(), false) == whole.end())
    remark_total_size(store, set, index.metadata, catalog->total_bytes(), options);
  SHARDWRIGHT_TRY(remark_surplus(store, set, index, options));
  return catalog;
}

}  // namespace

Result<Catalog> build_hub_file(HubFill& fill, Store& store, const std::string& key, bool directory) {
  if (directory) SHARDWRIGHT_TRY(add_side_files(fill.builder, store));
  auto catalog = fill.builder.build();
  if (!catalog.ok() && catalog.error().path.empty()) catalog.error().path = store.describe(key);
  return catalog;
}

Result<Catalog> open_hub(Store& store, std::string_view at, const HubKind& kind, HubFill& fill, OpenHubFile open_file,
                         const OpenOptions& options) {
  SHARDWRIGHT_ASSIGN(auto set, find_hub_set(store, at, kind));
  bool directory = at.empty();
  if (set.index.empty()) return open_file(store, set.single, directory, options);
  auto index = HubLines::read(store, set, options);
  if (!index.ok()) return std::move(index.error());
  if (!set.single.empty()) {
    auto missing = index->missing(set);
    auto remark =
        fail(Code::kCorrupt,
             missing.empty()
                 ? "an index and a single file lie side by side; the index is read, other programs may read the file"
                 : "the index names shards that are missing; the single file beside it is read")
            .at_path(store.describe(missing.empty() ? set.single : set.index))
            .with_hint("remove the one that is stale");
    options.remark(std::move(remark));
    if (!missing.empty()) return open_file(store, set.single, directory, options);
  }
  return open_set(store, set, *index, directory, fill, options);
}

}  // namespace shardwright
