/// What a checkpoint format must answer: which bytes lie where, and which files a wanted catalogue becomes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwright/format/catalog.h"
#include "shardwright/store/store.h"

namespace shardwright {

/// What execute() learned of a stored piece: its final place, CRC-32C of the stored bytes, zip's CRC-32 where the draft asked for it.
/// Literals have receipts too (tensor = kNoTensor). Of a piece that is scattered over its object: from its first byte to its last, as if
/// the bytes between were zero.
inline constexpr TensorId kNoTensor = ~0u;
struct Receipt {
  TensorId tensor = kNoTensor;
  uint32_t piece = 0;
  Place place;
  uint32_t crc32c = 0, crc32 = 0;
};

/// A stretch of an object to be written. Segments of one object are in byte order and do not overlap; bytes between them are zero.
inline constexpr uint32_t kWholeTensor = ~0u;
struct Segment {
  enum Type : uint8_t { kPayload, kLiteral, kLate };
  Type type = kLiteral;
  TensorId tensor = kNoTensor;  ///< kPayload: id in Draft::target()
  uint32_t piece =
      kWholeTensor;  ///< kPayload: kWholeTensor: all of it, raw, C order, little-endian; else index in target().pieces(tensor)
  uint64_t offset = kUnknown;  ///< in the object; kUnknown in append form
  uint64_t length = kUnknown;  ///< bytes; kUnknown for encoded payloads and late parts of append form
  View literal{};              ///< kLiteral: owned by the draft
};

/// Files that do not exist yet. Closed form (safetensors, HDF5, zip): every offset and size known before any payload. Append form
/// (encoded chunks): order known, execute() appends in segment order. Depends on specs and options only, not on threads or budget.
class Draft {
 public:
  virtual ~Draft() = default;
  /// The same tensors, ids and order as the `want` it was made from. Closed form: `want` itself (its pieces are the source's, not
  /// looked at). Append form: a catalogue with the pieces to be written.
  virtual const Catalog& target() const = 0;
  /// Keys to create, relative to the target directory, in commit order; sizes known in closed form. ObjectId indexes this.
  virtual std::span<const ObjectInfo> objects() const = 0;
  virtual std::vector<Segment> segments(ObjectId object) const = 0;
  /// Bytes of a kLate segment, once every other segment of its object is written; exactly segment.length when that is known.
  /// receipts: those of this object, in segment order, kLate ones left out.
  virtual Result<Bytes> late(ObjectId object, size_t segment, std::span<const Receipt> receipts) = 0;
  /// Objects made when all others are written, the entry point last; may be empty, then the last object is the entry point.
  virtual Result<std::vector<std::pair<std::string, Bytes>>> seal(std::span<const Receipt> receipts) = 0;
  /// What seal() will make, for those who want to know beforehand; sizes where they are known.
  virtual std::vector<ObjectInfo> sealed() const { return {}; }
  virtual bool wants_crc32() const { return false; }
  /// The rank that writes an object by itself, of what it holds; nullopt where an object has boxes of several ranks. Only drafts that were told
  /// WriteOptions::held know.
  virtual std::optional<int32_t> rank_of(ObjectId) const { return std::nullopt; }
  /// What the user should know: tensors over the limit, what the format cannot express. One sentence each.
  virtual std::vector<std::string> warnings() const { return {}; }
};

struct WriteOptions {
  std::string name;  ///< file name below the target directory ("x.weights.json"); "" = the directory's standard names
  uint64_t max_shard_bytes = kUnknown;  ///< kUnknown: one file
  bool strict = false;                  ///< a tensor over the limit is an error instead of a warning
  bool larger_alone = false;            ///< or neither: it is meant to have a shard to itself
  std::vector<std::pair<std::string, std::string>>
      settings{};        ///< what only one format knows, by name ("compression", "zstd"); see its docs
  uint64_t time_ns = 0;  ///< for formats that note when they were written; 0: no time, so equal input gives equal bytes
  /// Formats that note where arrays were (Orbax): of each wanted tensor, as the format writes it, and the shape of a shard, by which chunks are
  /// cut. Empty: nothing is noted.
  struct Sharding {
    std::string text;
    std::vector<int64_t> shard;
  };
  std::vector<Sharding> shardings{};
  /// Where several ranks write: of each wanted tensor the boxes that are held, each by the rank that is to write it. Empty: one writes all.
  struct Held {
    Box box;
    int32_t rank = 0;
  };
  std::vector<std::vector<Held>> held{};
  Store* base_store = nullptr;  ///< .keras: the existing archive whose other members are kept
  std::string base_key;
};

struct OpenOptions {
  bool isolate = false;               ///< read HDF5 metadata in a child process
  uint64_t max_metadata_bytes = GiB;  ///< cap on any single metadata object
  bool opaque_as_bytes =
      false;  ///< HDF5's opaque elements of one byte and no `dtype` are U8: the caller knows what they mean
  std::vector<Error>* findings = nullptr;  ///< verify: collect and go on, instead of stopping at the first
  std::vector<Error>* remarks = nullptr;   ///< without `findings`: what is odd but loadable, for a copy to warn of

  /// An error that makes the checkpoint wrong: collected when verifying (then ok), else returned.
  Status report(Error error) const;
  /// Odd, but loadable (a surplus shard, a wrong total_size): collected when verifying or where remarks are wanted, else dropped.
  void remark(Error error) const;
  /// Where remarks go; nullptr: nowhere, so none need be looked for.
  std::vector<Error>* remarked() const { return findings != nullptr ? findings : remarks; }
};

/// How sure sniff() is. A tie goes to the earlier row.
enum class Confidence : int { kNo = 0, kName = 1, kMagic = 2, kCertain = 3 };

/// Cap on an index that is read outside of open().
inline constexpr uint64_t kMaxIndexBytes = GiB;

/// One row of format_table.cc. `at`: key of a file, or "" for the directory itself.
struct Format {
  std::string_view name, description;
  std::string_view extensions;  ///< for people: "*.safetensors, directory with model.safetensors[.index.json]"
  struct Abilities {
    bool write, sharded, ties, metadata, subbyte;
  } can;
  Confidence (*sniff)(Store&, std::string_view at);
  /// Metadata only; never reads payload. Tensors in the order in which the checkpoint was written: of their bytes in the files, or, where those
  /// do not tell (HDF5), as the file's structure does. Splits into shards go by it.
  /// Trusts no size, offset, name or nesting. Errors: kCorrupt, kUnsupported, kNotFound with the place.
  Result<Catalog> (*open)(Store&, std::string_view at, const OpenOptions&);
  /// Objects of an existing set, entry points first, as far as they can be told even when it is broken: what a replacement removes.
  std::vector<std::string> (*members)(Store&, std::string_view at);
  /// nullptr: read only. `want`: specs, ties, values; pieces are not looked at. Its order is the source's (see open).
  Result<std::unique_ptr<Draft>> (*draft)(const Catalog& want, const WriteOptions&);
  /// Key and bytes of the index that the shards themselves call for; nullptr where a format has none. Shards are found by the old index's
  /// name pattern; an old index need not be there.
  Result<std::pair<std::string, Bytes>> (*rebuild_index)(Store&, std::string_view at, const OpenOptions&) = nullptr;
  /// Holds all bytes against the checksums that the files themselves carry, and reports what differs (see OpenOptions::report).
  /// nullptr: they carry none.
  Status (*check_sums)(Store&, std::string_view at, const OpenOptions&) = nullptr;
  std::string_view settings = "";  ///< names of WriteOptions::settings that draft() knows, for people: "zarr, api"
};

std::span<const Format* const> format_table();
/// nullptr when unknown.
const Format* find_format(std::string_view name);

/// The rows; each in its own file.
extern const Format kSafetensors;   ///< safetensors_format.cc: one file, or the hub's directory layout
extern const Format kOffload;       ///< offload_format.cc: a folder that accelerate offloads to
extern const Format kKerasH5;       ///< keras_format.cc: X.weights.h5
extern const Format kKerasSharded;  ///< keras_format.cc: X.weights.json + X_00000.weights.h5 ...
extern const Format kKerasArchive;  ///< keras_format.cc: X.keras
extern const Format kTorch;         ///< torch_format.cc: files of torch.save, or the hub's directory of them
extern const Format kOrbax;         ///< orbax_format.cc: a JAX training state
extern const Format kZarr;          ///< zarr_format.cc: zarr 2 and 3, read only
extern const Format kHdf5;          ///< hdf5_format.cc: any other HDF5 file, read only

/// A path a user gave, opened: store, key, row and catalogue.
struct Checkpoint {
  std::shared_ptr<Store> store;
  std::string at;    ///< "" for a directory
  std::string path;  ///< as given
  const Format* format = nullptr;
  Catalog catalog;
  std::vector<std::string> notes;  ///< what recovery did
};
/// Splits path into store and key, recovers what a crash left, sniffs and opens. Errors: kNotFound with near names; kUnsupported with
/// what the file seems to be (describe_magic).
Result<Checkpoint> open_checkpoint(const std::string& path, const OpenOptions& options = {},
                                   const FileStoreOptions& store = {});
/// Format by content; nullptr when none fits.
const Format* sniff_format(Store& store, std::string_view at);

}  // namespace shardwright
