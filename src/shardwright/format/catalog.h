/// What is, or will be, somewhere: a checkpoint, arrays, the shards of a mesh, files not yet written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"
#include "shardwright/codec/codec.h"
#include "shardwright/tensor/box.h"
#include "shardwright/tensor/dtype.h"

namespace shardwright {

using TensorId = uint32_t;
using ObjectId = uint32_t;

/// Where bytes are. kExtent: `length` bytes at `offset` of an object of the base store (zip members already resolved to it).
/// kLiteral: at `offset` of the catalogue's own literals. kMemory: caller memory, `offset` is the address of element 0; outlives
/// execute(). kCall: a producer or consumer. length kUnknown: not encoded yet; length 0 is a real piece.
/// rank: the process that has it; -1: a store that every rank reaches.
struct Place {
  enum Site : uint8_t { kExtent, kLiteral, kMemory, kCall };
  Site site = kExtent;
  int32_t rank = -1;
  ObjectId object = 0;
  uint64_t offset = 0, length = 0;
};

/// How stored bytes become elements: decode the chain, swap, read as `stored`.
struct Encoding {
  DType stored;
  bool big_endian = false;
  std::vector<CodecSpec> chain{};  ///< as applied when encoding; empty = raw
  uint64_t decoded_bytes = 0;      ///< of one chunk, exact; 0 for raw
  bool operator==(const Encoding&) const = default;
};

/// One box of one tensor and its place. strides: elements of the stored dtype between neighbours per dimension (any sign, 0 allowed)
/// in the raw or decoded bytes; empty = C order of box. An edge chunk has a clipped box and the strides of the full chunk.
struct Piece {
  Box box;
  Place place;
  uint32_t encoding = 0;  ///< index for Catalog::encoding()
  std::vector<int64_t> strides{};
};

/// How the elements of a piece lie in its raw or decoded bytes.
Strided layout_of(const Piece& piece);

/// A non-tensor value that belongs to the checkpoint: typed JSON text or opaque bytes, never interpreted by the engine.
/// Keys in use: "metadata" (JSON object: user metadata of the file or index), "keras.names" (JSON object: vars group -> layer name),
/// "safetensors.storages" (JSON list: per tensor [number, bytes] of the storage that it shares with others, or null: how shards are cut),
/// "torch.values" (JSON object: numbers and texts of a pickle by name), "opaque" (JSON object: what is no tensor and cannot be made one, by name).
struct Value {
  enum Type : uint8_t { kJson, kBytes };
  Type type = kJson;
  std::string data;
};

struct ObjectInfo {
  std::string key;           ///< in the base store
  uint64_t size = kUnknown;  ///< bytes
  std::string version{};     ///< what file_version() said when places in it were found; "": nobody asked
};

/// Immutable once built, insertion order kept; cheap to copy (shared). At most 64 B + name per tensor and 48 B per irregular piece.
/// Names are the format's own strings, verbatim and opaque: never split on '.' or '/'. Thread-safe to read.
class Catalog {
 public:
  struct Spec {
    std::string_view name;
    DType dtype;                     ///< logical
    std::span<const int64_t> shape;  ///< logical, C order
    uint64_t elements() const;
    uint64_t nbytes() const;  ///< of the logical values
  };
  Catalog();
  size_t size() const;
  Spec spec(TensorId tensor) const;
  std::optional<TensorId> find(std::string_view name) const;  ///< O(log n)
  /// Pairwise disjoint or equal (replicas), together the whole tensor. Made on demand. An alias has its kept tensor's pieces.
  std::vector<Piece> pieces(TensorId tensor) const;
  size_t piece_count(TensorId tensor) const;
  /// The one piece, when there is exactly one, it is the whole tensor, raw and in C order, little-endian: the fast path. Else nullopt.
  struct Flat {
    Place place;
    DType stored;
  };
  std::optional<Flat> flat(TensorId tensor) const;
  /// The tensor that holds the bytes of a tie; itself when it is none. Never chained.
  TensorId same_as(TensorId tensor) const;
  size_t tie_count() const;
  const Encoding& encoding(uint32_t index) const;
  View literal(const Place& place) const;       ///< REQUIRES: place.site == kLiteral
  std::span<const ObjectInfo> objects() const;  ///< those that hold tensor bytes, in the checkpoint's order
  /// Every object of the set, entry points (index, single file) first: what a replacement removes. Not side files.
  std::span<const std::string> members() const;
  size_t entry_count() const;                      ///< how many of members() are entry points
  const Value* value(std::string_view key) const;  ///< nullptr when absent
  std::vector<std::string> value_keys() const;
  /// Files that belong to the checkpoint and are no tensors, to be carried along (config, tokenizer, assets): where they lie, and their
  /// name in a copy.
  struct SideFile {
    std::string name, key;
    uint64_t offset = 0, length = kUnknown;  ///< as stored; kUnknown: the whole object
    std::string codec{};                     ///< a row of codec_table that it is stored with; "": as it is
    uint64_t decoded_bytes = kUnknown;       ///< with a codec: of the file itself
  };
  std::span<const SideFile> side_files() const;
  uint64_t total_bytes() const;   ///< of logical values, ties counted once
  uint64_t memory_bytes() const;  ///< what this catalogue holds

  /// For another process (isolation, ranks). deserialize trusts no number or name: kCorrupt for anything that build(partial) would refuse.
  /// Whether places in memory and tensors that are not whole make sense is for the caller to say.
  Bytes serialize() const;
  static Result<Catalog> deserialize(View bytes);

 private:
  friend class CatalogBuilder;
  struct Data;
  std::shared_ptr<const Data> data_;
};

/// Up to `most` tensor names nearest to one that is not there (see nearest_names), for hints.
std::vector<std::string> nearest_tensors(const Catalog& catalog, std::string_view wanted, size_t most = 1);
/// A glob as it matches names of the catalogue: as it is, or, where that matches nothing, with '.' for every '/', since trees are spelled both
/// ways ("params/*"). nullopt: neither matches.
std::optional<std::string> find_glob(const Catalog& catalog, std::string_view glob);

/// Fills a Catalog. Order of calls: objects and encodings before the pieces that name them; pieces of a tensor right after it.
class CatalogBuilder {
 public:
  CatalogBuilder();
  ~CatalogBuilder();
  CatalogBuilder(CatalogBuilder&&) noexcept;
  void reserve(size_t tensors, size_t name_bytes);
  ObjectId add_object(ObjectInfo info);
  uint32_t add_encoding(const Encoding& encoding);  ///< interned
  /// Sizes over 2^63 bits and negative extents: kCorrupt.
  Result<TensorId> add_tensor(std::string_view name, DType dtype, std::span<const int64_t> shape);
  /// Of the tensor added last. Extents must lie within their object when its size is known, and be as long as box and encoding say
  /// (raw, C order): kCorrupt with offset, found and expected.
  /// may_reach_beyond: an encoded chunk of which the tensor is only a part may begin before it and end after it.
  Status add_piece(const Piece& piece, bool may_reach_beyond = false);
  /// The common case without a Box: the whole tensor, raw, C order, little-endian, stored as `stored`.
  Status add_flat(const Place& place, DType stored);
  Place add_literal(View bytes);
  /// REQUIRES: `kept` added before, same dtype and shape, itself no alias.
  void tie(TensorId alias, TensorId kept);
  /// Makes ties of tensors whose single flat extents are equal and not empty; the first added is kept. O(n log n).
  void tie_equal_extents();
  void set_value(std::string key, Value value);
  void set_members(std::vector<std::string> members, size_t entry_count);
  void add_side_file(Catalog::SideFile file);
  size_t size() const;
  /// Errors: kCorrupt for duplicate names, and for tensors whose pieces overlap in part or leave a hole (named, with the box).
  /// partial: tensors may have no pieces, or only some of their boxes (wanted specs, one process's part).
  Result<Catalog> build(bool partial = false);

 private:
  std::shared_ptr<Catalog::Data> data_;
};

}  // namespace shardwright
