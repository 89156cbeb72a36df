// zarr's crc32c: four little-endian bytes after the data.
#include "shardwright/base/checksum.h"
#include "shardwright/codec/codec_table.h"
#include "shardwright/codec/tail_keeper.h"

namespace shardwright::detail {
namespace {

constexpr size_t kSumBytes = 4;

class Encoder : public Codec {
 public:
  uint64_t window_bytes() const override { return sizeof *this; }
  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    sum_ = crc32c(in, sum_);
    if (!in.empty()) SHARDWRIGHT_TRY(emit(in));
    return last ? emit(std::as_bytes(std::span(&sum_, 1))) : Status();
  }

 private:
  uint32_t sum_ = 0;
};

/// Passes data on before the sum is known to be right: the error comes with the last push.
class Decoder : public Codec {
 public:
  uint64_t window_bytes() const override { return sizeof *this + kSumBytes; }
  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(keeper_.push(in, [&](View data) {
      sum_ = crc32c(data, sum_);
      return emit(data);
    }));
    if (!last) return {};
    if (!keeper_.complete()) return fail(Code::kCorrupt, "chunk ends before its CRC-32C");
    auto stored = load_le<uint32_t>(keeper_.tail());
    if (stored == sum_) return {};
    return fail(Code::kCorrupt, "CRC-32C of the chunk is wrong")
        .with_found(std::to_string(stored))
        .with_expected(std::to_string(sum_));
  }

 private:
  TailKeeper keeper_{kSumBytes};
  uint32_t sum_ = 0;
};

}  // namespace

CodecResult crc32c_decoder(const CodecSpec&, uint64_t) { return std::make_unique<Decoder>(); }
CodecResult crc32c_encoder(const CodecSpec&, uint64_t) { return std::make_unique<Encoder>(); }
uint64_t crc32c_bound(const CodecSpec&, uint64_t chunk_bytes) {
  return checked_add(chunk_bytes, kSumBytes).value_or(kUnknown);
}

}  // namespace shardwright::detail
