#include "shardwright/format/orbax_draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/base/checksum.h"
#include "shardwright/base/text.h"
#include "shardwright/format/zarr_metadata.h"
#include "shardwright/store/ocdbt_write.h"

namespace shardwright {
namespace {

/// As Orbax configures its databases.
constexpr uint64_t kMaxInline = 1024, kMaxNode = 100'000'000;
/// Values go into up to four files, so that as many writers do not wait for each other, but into none smaller than this.
constexpr uint64_t kFiles = 4, kLeastFile = 64 * MiB, kMostFile = 2 * GiB;

/// One chunk to be written: of which array, and where it goes.
struct Chunk {
  size_t item, array;  ///< in items_, and its tensors
  uint32_t piece;      ///< kWholeTensor, or its index
  std::string key;     ///< below the array
  ObjectId object;
  uint64_t bytes;     ///< raw
  int32_t rank = -1;  ///< that holds all of it
};

class OrbaxDraft : public Draft {
 public:
  static Result<std::unique_ptr<Draft>> make(const Catalog& want, const WriteOptions& options) {
    auto draft = std::unique_ptr<OrbaxDraft>(new OrbaxDraft(want));
    SHARDWRIGHT_ASSIGN(draft->settings_, OrbaxSettings::parse(options.settings));
    draft->time_ns_ = options.time_ns;
    SHARDWRIGHT_TRY(draft->take_metadata());
    SHARDWRIGHT_ASSIGN(draft->items_, plan_orbax_items(want, draft->settings_, options, draft->warnings_));
    draft->find_ties();
    draft->cut_chunks();
    SHARDWRIGHT_TRY(draft->tell_oversized(options));
    draft->assign_ranks(options.held);
    draft->share_out(std::min(options.max_shard_bytes, kMostFile));
    SHARDWRIGHT_TRY(draft->make_target());
    return Result<std::unique_ptr<Draft>>(std::move(draft));
  }

  const Catalog& target() const override { return target_; }
  std::span<const ObjectInfo> objects() const override { return objects_; }
  std::vector<std::string> warnings() const override { return warnings_; }
  std::optional<int32_t> rank_of(ObjectId object) const override {
    return by_rank_ ? std::optional(of_object(object).front().rank) : std::nullopt;
  }

  std::vector<Segment> segments(ObjectId object) const override {
    std::vector<Segment> out;
    uint64_t at = 0;
    for (const Chunk& chunk : of_object(object)) {
      TensorId tensor = items_[chunk.item].tensors[chunk.array];
      Segment payload{Segment::kPayload, tensor, chunk.piece, at, chunk.bytes, {}};
      if (settings_.zstd) payload.offset = payload.length = kUnknown;
      out.push_back(payload);
      at += chunk.bytes;
      if (settings_.zstd || !settings_.zarr3) continue;
      View index = indexes_.at(chunk.bytes);
      out.push_back({.type = Segment::kLiteral, .offset = at, .length = index.size(), .literal = index});
      at += index.size();
    }
    return out;
  }

  Result<Bytes> late(ObjectId, size_t, std::span<const Receipt>) override {
    return fail(Code::kInternal, "Orbax has no late segments");
  }

  Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt> receipts) override {
    std::vector<Place> places;
    for (const auto& receipt : receipts)
      if (receipt.tensor != kNoTensor) places.push_back(receipt.place);
    if (places.size() != chunks_.size()) return fail(Code::kInternal, "a chunk has no receipt");
    std::vector<std::pair<std::string, Bytes>> out;
    for (size_t item = 0; item < items_.size(); ++item) {
      SHARDWRIGHT_TRY(seal_database(item, places, out));
      seal_tree(items_[item], out);
    }
    seal_step(out);
    return out;
  }

  std::vector<ObjectInfo> sealed() const override {
    std::vector<ObjectInfo> out;
    std::vector<std::pair<std::string, Bytes>> texts;
    for (const auto& item : items_) {
      if (!item.tensors.empty()) out.push_back({item.directory + nodes_of(item).relative, kUnknown});
      out.push_back({item.directory + std::string(kOcdbtManifest), kUnknown});
      seal_tree(item, texts);
    }
    seal_step(texts);
    for (const auto& [key, text] : texts) out.push_back({key, text.size()});
    return out;
  }

 private:
  explicit OrbaxDraft(const Catalog& want) : want_(want) {}

  Status take_metadata() {
    for (const auto& key : want_.value_keys())
      if (key != "metadata" && key != "opaque" && key != kOrbaxValue)
        warnings_.push_back(fmt::format("Orbax has no place for '{}'; it is left out", key));
    if (const Value* value = want_.value("metadata")) {
      SHARDWRIGHT_ASSIGN(custom_, parse_json(value->data));
      if (!custom_.is_object()) return fail(Code::kInvalidArgument, "metadata is not a JSON object");
    }
    return {};
  }

  /// A name for a file or database that depends on what is written only.
  Hash128 identity(std::string_view of) const {
    std::string text(of);
    for (TensorId id = 0; id < want_.size(); ++id) {
      auto spec = want_.spec(id);
      text += fmt::format("\n{} {} {}", spec.name, dtype_row(spec.dtype).name, shape_text(spec.shape));
    }
    return xxh3_128(view_of(text));
  }

  OcdbtFile nodes_of(const OrbaxItem& item) const { return {"", "d/" + identity("nodes of " + item.name).hex()}; }

  /// Names of one item may share chunks; a database of another item cannot name them.
  void find_ties() {
    std::vector<size_t> item_of(want_.size());
    for (size_t i = 0; i < items_.size(); ++i)
      for (TensorId id : items_[i].tensors) item_of[id] = i;
    for (TensorId id = 0; id < want_.size(); ++id)
      kept_.push_back(item_of[want_.same_as(id)] == item_of[id] ? want_.same_as(id) : id);
  }

  /// A chunk over the limit has a file to itself.
  Status tell_oversized(const WriteOptions& options) {
    std::map<TensorId, uint64_t> over;
    for (const Chunk& chunk : chunks_)
      if (chunk.bytes > options.max_shard_bytes) over[items_[chunk.item].tensors[chunk.array]] = chunk.bytes;
    std::string names;
    for (const auto& [id, bytes] : over) {
      names += fmt::format("{}'{}' ({})", names.empty() ? "" : ", ", want_.spec(id).name, format_bytes(bytes));
      if (!options.strict && !options.larger_alone)
        warnings_.push_back(
            fmt::format("a chunk of '{}' ({}) is larger than a data file may be ({}): it has one to itself",
                        want_.spec(id).name, format_bytes(bytes), format_bytes(options.max_shard_bytes)));
    }
    if (over.empty() || !options.strict) return {};
    return fail(Code::kInvalidArgument, "chunks are larger than a data file may be: " + names)
        .with_expected("at most " + format_bytes(options.max_shard_bytes))
        .with_hint("raise --max-shard-size, or leave --strict out");
  }

  void cut_chunks() {
    for (size_t i = 0; i < items_.size(); ++i)
      for (size_t a = 0; a < items_[i].tensors.size(); ++a) cut_array(i, a);
  }

  void cut_array(size_t item, size_t array) {
    TensorId id = items_[item].tensors[array];
    auto spec = want_.spec(id);
    if (kept_[id] != id || spec.elements() == 0) return;
    const auto& extent = items_[item].chunks[array];
    bool whole = std::ranges::equal(extent, spec.shape);
    uint64_t bytes = *bytes_of_elements(spec.dtype, *element_count(extent));
    ZarrArray keys;
    keys.key_prefix = settings_.zarr3 ? "c/" : "";
    keys.key_of_scalar = settings_.zarr3 ? "c" : "0";
    keys.separator = settings_.zarr3 ? '/' : '.';
    std::vector<int64_t> index(extent.size());
    for (uint32_t piece = 0;; ++piece) {
      chunks_.push_back({item, array, whole && !settings_.zstd ? kWholeTensor : piece, keys.key_of(index), 0, bytes});
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == spec.shape[d - 1] / extent[d - 1]) index[--d] = 0;
      if (d == 0) break;
    }
  }

  /// Which rank holds each chunk. Where one holds every chunk, each writes files of its own; the chunks of each lie together then.
  void assign_ranks(std::span<const std::vector<WriteOptions::Held>> held) {
    by_rank_ = !held.empty() && !chunks_.empty();
    for (Chunk& chunk : chunks_) {
      if (!by_rank_) return;
      const OrbaxItem& item = items_[chunk.item];
      TensorId id = item.tensors[chunk.array];
      Box box = box_of(chunk);
      auto holds = [&](const WriteOptions::Held& one) { return one.box.contains(box); };
      auto one = std::ranges::find_if(held[id], holds);
      by_rank_ = one != held[id].end();
      if (by_rank_) chunk.rank = one->rank;
    }
    std::ranges::stable_sort(chunks_, {}, [](const Chunk& chunk) { return std::pair(chunk.item, chunk.rank); });
  }

  Box box_of(const Chunk& chunk) const {
    const OrbaxItem& item = items_[chunk.item];
    auto shape = want_.spec(item.tensors[chunk.array]).shape;
    if (chunk.piece == kWholeTensor) return Box::whole(shape);
    Box box{std::vector<int64_t>(shape.size()), item.chunks[chunk.array]};
    uint64_t left = chunk.piece;
    for (size_t d = shape.size(); d-- > 0;) {
      auto count = static_cast<uint64_t>(shape[d] / box.extent[d]);
      box.start[d] = static_cast<int64_t>(left % count) * box.extent[d];
      left /= count;
    }
    return box;
  }

  /// Consecutive chunks of an item and rank to files of about the same size.
  void share_out(uint64_t most) {
    using Owner = std::pair<size_t, int32_t>;
    std::map<Owner, uint64_t> totals;
    std::optional<Owner> open;
    uint64_t held = 0;
    for (const Chunk& chunk : chunks_) totals[{chunk.item, rank_of(chunk)}] += chunk.bytes;
    for (Chunk& chunk : chunks_) {
      Owner owner{chunk.item, rank_of(chunk)};
      uint64_t limit = std::min(most, std::max((totals[owner] + kFiles - 1) / kFiles, kLeastFile));
      uint64_t bytes = chunk.bytes + (settings_.zarr3 ? kShardIndexBytes : 0);
      if (open != owner || held + chunk.bytes > limit) {
        open = owner;
        held = 0;
        const auto& item = items_[chunk.item];
        auto name = identity(fmt::format("file {} of {}", objects_.size(), item.name)).hex();
        std::string process = by_rank_ ? fmt::format("{}{}/", kOrbaxProcess, chunk.rank) : "";
        objects_.push_back({fmt::format("{}{}d/{}", item.directory, process, name), settings_.zstd ? kUnknown : 0});
        bases_.push_back(std::move(process));
      }
      chunk.object = static_cast<ObjectId>(objects_.size() - 1);
      held += chunk.bytes;
      if (settings_.zstd) continue;
      objects_[chunk.object].size += bytes;
      if (settings_.zarr3) indexes_.try_emplace(chunk.bytes, shard_index_of_one(chunk.bytes));
    }
  }

  int32_t rank_of(const Chunk& chunk) const { return by_rank_ ? chunk.rank : 0; }

  std::span<const Chunk> of_object(ObjectId object) const {
    auto [first, last] = std::equal_range(chunks_.begin(), chunks_.end(), object, ByObject());
    return {first, last};
  }
  struct ByObject {
    bool operator()(const Chunk& a, ObjectId b) const { return a.object < b; }
    bool operator()(ObjectId a, const Chunk& b) const { return a < b.object; }
  };

  /// The wanted tensors, with the pieces that they are cut into.
  Status make_target() {
    CatalogBuilder builder;
    for (const auto& object : objects_) builder.add_object({object.key});
    std::vector<std::pair<size_t, size_t>> where(want_.size());
    for (size_t i = 0; i < items_.size(); ++i)
      for (size_t a = 0; a < items_[i].tensors.size(); ++a) where[items_[i].tensors[a]] = {i, a};
    std::vector<std::vector<const Chunk*>> chunks(want_.size());
    for (const Chunk& chunk : chunks_)
      if (chunk.piece != kWholeTensor) chunks[items_[chunk.item].tensors[chunk.array]].push_back(&chunk);
    for (TensorId id = 0; id < want_.size(); ++id) {
      auto spec = want_.spec(id);
      SHARDWRIGHT_ASSIGN(auto added, builder.add_tensor(spec.name, spec.dtype, spec.shape));
      if (kept_[id] != id) builder.tie(added, kept_[id]);
      if (chunks[id].empty()) continue;
      std::ranges::sort(chunks[id], {}, &Chunk::piece);
      const auto& extent = items_[where[id].first].chunks[where[id].second];
      uint32_t encoding = builder.add_encoding(encoding_of(spec.dtype, chunks[id].front()->bytes));
      std::vector<int64_t> start(extent.size());
      for (const Chunk* chunk : chunks[id]) {
        SHARDWRIGHT_TRY(
            builder.add_piece({{start, extent}, {Place::kExtent, -1, chunk->object, 0, kUnknown}, encoding, {}}));
        for (size_t d = start.size(); d-- > 0;) {
          if ((start[d] += extent[d]) < spec.shape[d]) break;
          start[d] = 0;
        }
      }
    }
    for (const auto& key : want_.value_keys()) builder.set_value(key, *want_.value(key));
    for (const auto& file : want_.side_files()) builder.add_side_file(file);
    SHARDWRIGHT_ASSIGN(target_, builder.build(/*partial=*/true));
    return {};
  }

  Encoding encoding_of(DType dtype, uint64_t bytes) const {
    if (!settings_.zstd) return {dtype};
    Encoding encoding{dtype, false, {{"zstd", static_cast<uint64_t>(static_cast<int64_t>(settings_.level))}}, bytes};
    if (settings_.zarr3) encoding.chain.push_back({"sharding_indexed"});
    return encoding;
  }

  /// Keys of one item in order: metadata of each array in the node, chunks where their receipts say. A tie is one more key for the same bytes.
  Status seal_database(size_t index, std::span<const Place> places,
                       std::vector<std::pair<std::string, Bytes>>& out) const {
    const OrbaxItem& item = items_[index];
    struct Row {
      std::string key, text;
      const Place* place;
    };
    std::vector<Row> rows;
    std::map<TensorId, std::vector<size_t>> chunks;
    for (size_t c = 0; c < chunks_.size(); ++c)
      if (chunks_[c].item == index) chunks[item.tensors[chunks_[c].array]].push_back(c);
    for (size_t a = 0; a < item.tensors.size(); ++a) {
      auto spec = want_.spec(item.tensors[a]);
      std::string path = item.names[a];
      if (!path.empty() && !path.ends_with('/')) path += '/';  // as Orbax puts them together
      ZarrWriteOptions zarr{settings_.zarr3, settings_.zstd, settings_.level};
      rows.push_back({path + std::string(settings_.zarr3 ? kZarr3Node : kZarr2Array),
                      zarr_array_text(spec.shape, item.chunks[a], item.types[a], zarr), nullptr});
      for (size_t c : chunks[kept_[item.tensors[a]]]) rows.push_back({path + chunks_[c].key, "", &places[c]});
    }
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.key < b.key; });
    OcdbtConfig config;
    config.uuid = identity("uuid of " + item.name).bytes;
    config.max_inline_bytes = kMaxInline;
    config.max_node_bytes = kMaxNode;
    config.zstd_level = 0;
    OcdbtFile nodes = nodes_of(item);
    OcdbtTreeBuilder builder(config, nodes);
    for (const Row& row : rows) {
      if (row.place == nullptr) {
        SHARDWRIGHT_TRY(builder.add(row.key, view_of(row.text)));
        continue;
      }
      uint64_t length = row.place->length + (settings_.zarr3 && !settings_.zstd ? kShardIndexBytes : 0);
      const std::string& base = bases_[row.place->object];
      OcdbtFile file{base, objects_[row.place->object].key.substr(item.directory.size() + base.size())};
      SHARDWRIGHT_TRY(builder.add(row.key, file, row.place->offset, length));
    }
    SHARDWRIGHT_ASSIGN(auto version, builder.finish());
    version.generation = 1;
    version.commit_ns = time_ns_;
    SHARDWRIGHT_ASSIGN(Bytes manifest, make_ocdbt_manifest(config, version, nodes));
    if (!builder.nodes().empty()) out.emplace_back(item.directory + nodes.relative, builder.nodes());
    out.emplace_back(item.directory + std::string(kOcdbtManifest), std::move(manifest));
    return {};
  }

  void seal_tree(const OrbaxItem& item, std::vector<std::pair<std::string, Bytes>>& out) const {
    std::map<std::string, std::vector<int64_t>> write_shapes;
    for (size_t a = 0; a < item.tensors.size(); ++a) {
      bool scalar = want_.spec(item.tensors[a]).shape.empty();
      write_shapes[item.names[a]] = scalar ? std::vector<int64_t>() : item.chunks[a];
    }
    std::vector<OrbaxArrayNote> notes;
    for (const auto& leaf : item.tree.leaves) {
      if (leaf.type != "jax.Array" || leaf.skipped) continue;
      auto random = item.random_keys.find(leaf.name());
      notes.push_back({leaf.name(), write_shapes[leaf.name()], random == item.random_keys.end() ? "" : random->second});
    }
    auto put = [&](std::string_view name, const std::string& text) {
      out.emplace_back(item.directory + std::string(name), bytes_of(text));
    };
    if (!item.sharding.empty()) put(kOrbaxSharding, json_text(item.sharding));
    if (!item.strings.empty()) put(kOrbaxStrings, json_text(item.strings));
    if (!notes.empty()) put(kOrbaxArrays, orbax_arrays_text(notes));
    put(kOrbaxTree, orbax_tree_text(item.tree, write_shapes));
    if (!item.directory.empty() && !settings_.version1) put(kOrbaxCommit, kCommitted);
  }

  void seal_step(std::vector<std::pair<std::string, Bytes>>& out) const {
    std::map<std::string, std::string> handlers;
    for (const auto& item : items_) handlers[item.name] = item.handler;
    if (settings_.version1) out.emplace_back(kOrbaxVersion1, Bytes());
    out.emplace_back(kOrbaxStep, bytes_of(orbax_step_text(handlers, time_ns_, custom_)));
    out.emplace_back(kOrbaxCommit, bytes_of(kCommitted));
  }

  static constexpr const char* kCommitted = "Checkpoint commit was successful";

  const Catalog want_;
  OrbaxSettings settings_;
  uint64_t time_ns_ = 0;
  Json custom_ = Json::object();
  std::vector<OrbaxItem> items_;
  std::vector<TensorId> kept_;  ///< of each tensor, the one whose chunks it has: itself, or one of its item
  std::vector<Chunk> chunks_;   ///< in the order of the files
  bool by_rank_ = false;
  std::vector<ObjectInfo> objects_;
  std::vector<std::string> bases_;     ///< of objects_: "", or the directory of its process
  std::map<uint64_t, Bytes> indexes_;  ///< of uncompressed shards, by the size of their chunk
  Catalog target_;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<std::unique_ptr<Draft>> draft_orbax(const Catalog& want, const WriteOptions& options) {
  return OrbaxDraft::make(want, options);
}

}  // namespace shardwright
