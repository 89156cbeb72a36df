/// Bytes to bytes, streaming both ways (decision 8): memory is a window, whatever the size of the chunk.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardwright/base/bytes.h"
#include "shardwright/base/result.h"

namespace shardwright {

/// One direction of one codec over one chunk. push() is called in order; `last` once, with the last bytes (may be empty).
/// emit() receives output in order, each view valid only during the call; its error ends the push.
/// Output bytes depend on input and parameters only, never on how push() was cut.
/// Errors: kCorrupt for input that is not valid or ends early. A decoder may emit bytes before it finds that they are wrong: they count
/// only once the last push succeeded. Not thread-safe; one object per chunk and direction.
class Codec {
 public:
  virtual ~Codec() = default;
  /// Upper bound of the memory it holds, output buffer included, whatever the chunk's size. For codecs that must see a whole chunk
  /// (shuffle) it is that chunk's size.
  virtual uint64_t window_bytes() const = 0;
  virtual Status push(View in, bool last, const std::function<Status(View)>& emit) = 0;
  /// Offers a decoder memory for the whole decoded chunk, before the first push(). True: it decodes there, front to back, and what it emits are
  /// views of it; `whole` outlives the pushes. False: it emits from memory of its own, as ever.
  virtual bool decode_into(MutableView whole) {
    (void)whole;
    return false;
  }
};

/// One step of a chain as a format names it. Encoding applies a chain front to back, decoding back to front.
struct CodecSpec {
  std::string name;  ///< a row of codec_table: "zlib", "zstd", "shuffle", ...
  uint64_t parameter =
      0;  ///< zlib, gzip, deflate, zstd: level (zstd: as int64_t); shuffle, transpose: element size in bytes; blosc: BloscParameters; small_int: SmallInt
  std::vector<uint64_t> values{};  ///< transpose: extents of the decoded chunk, then the order of its dimensions
  bool operator==(const CodecSpec&) const = default;
};

/// How Blosc encodes, as CodecSpec::parameter. Decoding needs none of it.
struct BloscParameters {
  int level = 5, shuffle = 1;  ///< 0 to 9; 0 none, 1 bytes, 2 bits
  int compressor = 0;          ///< Blosc's number: 0 blosclz, 1 lz4, 2 lz4hc, 3 snappy, 4 zlib, 5 zstd
  uint32_t element_bytes = 1;
  uint64_t pack() const {
    return static_cast<uint64_t>(level) | static_cast<uint64_t>(shuffle) << 8 |
           static_cast<uint64_t>(compressor) << 16 | uint64_t{element_bytes} << 32;
  }
  static BloscParameters unpack(uint64_t p) {
    return {static_cast<int>(p & 255), static_cast<int>(p >> 8 & 255), static_cast<int>(p >> 16 & 255),
            static_cast<uint32_t>(p >> 32)};
  }
};

/// The type of codec "small_int", as CodecSpec::parameter: decoded, a value is an int8 or uint8.
struct SmallInt {
  int bits = 4;  ///< 1 to 7
  bool is_signed = false;
  uint64_t pack() const { return static_cast<uint64_t>(bits) | uint64_t{is_signed} << 8; }
  static SmallInt unpack(uint64_t p) { return {static_cast<int>(p & 255), (p >> 8 & 1) != 0}; }
};

/// The index at the end of a zarr shard whose only chunk takes `bytes`: what codec "sharding_indexed" appends.
inline constexpr uint64_t kShardIndexBytes = 20;
Bytes shard_index_of_one(uint64_t bytes);

struct CodecRow {
  std::string_view name, description;
  bool exact;  ///< encoded_bound is what the encoder emits, not only a bound
  /// chunk_bytes: exact size of the decoded side of this step, kUnknown when not known.
  Result<std::unique_ptr<Codec>> (*decoder)(const CodecSpec&, uint64_t chunk_bytes);
  Result<std::unique_ptr<Codec>> (*encoder)(const CodecSpec&, uint64_t chunk_bytes);
  /// Most bytes the encoder can emit for that input; budget is granted by it.
  uint64_t (*encoded_bound)(const CodecSpec&, uint64_t chunk_bytes);
};
std::span<const CodecRow> codec_table();

/// The whole chain as one codec. decoded_bytes: exact size of the chunk once decoded; a decoder that would emit more or less is kCorrupt
/// (never allocated, never emitted past it).
Result<std::unique_ptr<Codec>> make_decoder(std::span<const CodecSpec> chain, uint64_t decoded_bytes);
Result<std::unique_ptr<Codec>> make_encoder(std::span<const CodecSpec> chain, uint64_t decoded_bytes);
/// kUnknown when a codec is not known, or past 64 bits.
uint64_t encoded_bound(std::span<const CodecSpec> chain, uint64_t decoded_bytes);

}  // namespace shardwright
