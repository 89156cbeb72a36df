// A zarr shard that holds one inner chunk, with its index at the end: {offset, bytes} as 64 bits each, and their CRC-32C. Shards of several
// chunks are no codec here: the catalogue reads their index and names each chunk by itself.
#include "shardwright/base/checksum.h"
#include "shardwright/codec/codec_table.h"
#include "shardwright/codec/tail_keeper.h"

namespace shardwright::detail {
namespace {

class Encoder : public Codec {
 public:
  uint64_t window_bytes() const override { return sizeof *this; }
  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    bytes_ += in.size();
    if (!in.empty()) SHARDWRIGHT_TRY(emit(in));
    return last ? emit(shard_index_of_one(bytes_)) : Status();
  }

 private:
  uint64_t bytes_ = 0;
};

class Decoder : public Codec {
 public:
  uint64_t window_bytes() const override { return sizeof *this + kShardIndexBytes; }
  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(keeper_.push(in, [&](View data) {
      bytes_ += data.size();
      return emit(data);
    }));
    return last ? check() : Status();
  }

 private:
  Status check() const {
    if (!keeper_.complete()) return fail(Code::kCorrupt, "shard ends before its index");
    View index = keeper_.tail();
    if (crc32c(index.first(16)) != load_le<uint32_t>(index.subspan(16)))
      return fail(Code::kCorrupt, "CRC-32C of the shard's index is wrong");
    auto offset = load_le<uint64_t>(index), bytes = load_le<uint64_t>(index.subspan(8));
    if (offset == 0 && bytes == bytes_) return {};
    return fail(Code::kCorrupt, "the shard's index does not fit the shard")
        .with_found(std::to_string(bytes) + " bytes at " + std::to_string(offset))
        .with_expected(std::to_string(bytes_) + " bytes at 0");
  }
  TailKeeper keeper_{kShardIndexBytes};
  uint64_t bytes_ = 0;
};

}  // namespace

CodecResult sharding_decoder(const CodecSpec&, uint64_t) { return std::make_unique<Decoder>(); }
CodecResult sharding_encoder(const CodecSpec&, uint64_t) { return std::make_unique<Encoder>(); }
uint64_t sharding_bound(const CodecSpec&, uint64_t chunk_bytes) {
  return checked_add(chunk_bytes, kShardIndexBytes).value_or(kUnknown);
}

}  // namespace shardwright::detail

namespace shardwright {

Bytes shard_index_of_one(uint64_t bytes) {
  Bytes index;
  append_le(index, uint64_t{0});
  append_le(index, bytes);
  append_le(index, crc32c(index));
  return index;
}

}  // namespace shardwright
