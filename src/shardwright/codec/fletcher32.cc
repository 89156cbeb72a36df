// HDF5's Fletcher-32 over big-endian 16-bit words, four little-endian bytes after the data.
#include <algorithm>

#include "shardwright/codec/codec_table.h"
#include "shardwright/codec/tail_keeper.h"

namespace shardwright::detail {
namespace {

constexpr size_t kSumBytes = 4;

/// The two sums modulo 65535, as HDF5 folds them: a multiple of 65535 that is not zero becomes 65535.
class Fletcher32 {
 public:
  void update(View bytes) {
    if (bytes.empty()) return;
    if (odd_) {
      add_word(high_, bytes[0]);
      fold();
      odd_ = false;
      bytes = bytes.subspan(1);
    }
    // So many words can be added up before 32 bits overflow.
    constexpr size_t kWords = 360;
    while (bytes.size() >= 2) {
      size_t words = std::min(bytes.size() / 2, kWords);
      for (size_t i = 0; i < words; ++i) add_word(bytes[2 * i], bytes[2 * i + 1]);
      fold();
      bytes = bytes.subspan(2 * words);
    }
    if (!bytes.empty()) {
      high_ = bytes[0];
      odd_ = true;
    }
  }
  uint32_t finish() {
    if (odd_) add_word(high_, std::byte{0});
    fold();
    fold();
    return sum2_ << 16 | sum1_;
  }

 private:
  void add_word(std::byte high, std::byte low) {
    sum1_ += static_cast<uint32_t>(high) << 8 | static_cast<uint32_t>(low);
    sum2_ += sum1_;
  }
  void fold() {
    sum1_ = (sum1_ & 0xffff) + (sum1_ >> 16);
    sum2_ = (sum2_ & 0xffff) + (sum2_ >> 16);
  }

  uint32_t sum1_ = 0, sum2_ = 0;
  bool odd_ = false;
  std::byte high_{};
};

class FletcherEncoder : public Codec {
 public:
  uint64_t window_bytes() const override { return sizeof *this; }
  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    sum_.update(in);
    if (!in.empty()) SHARDWRIGHT_TRY(emit(in));
    if (!last) return {};
    const uint32_t sum = sum_.finish();
    return emit(std::as_bytes(std::span(&sum, 1)));
  }

 private:
  Fletcher32 sum_;
};

/// Passes data on before the sum is known to be right: the error comes with the last push.
class FletcherDecoder : public Codec {
 public:
  uint64_t window_bytes() const override { return sizeof *this + kSumBytes; }
  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(keeper_.push(in, [&](View data) {
      sum_.update(data);
      return emit(data);
    }));
    return last ? check() : Status();
  }

 private:
  Status check() {
    if (!keeper_.complete()) return fail(Code::kCorrupt, "chunk ends before its Fletcher-32 checksum");
    const auto stored = load_le<uint32_t>(keeper_.tail()), computed = sum_.finish();
    // HDF5 before 1.6.3 swapped the bytes of each half on little-endian machines; its readers still accept that, and so do we.
    const uint32_t swapped = (computed & 0x00ff00ff) << 8 | (computed >> 8 & 0x00ff00ff);
    if (stored == computed || stored == swapped) return {};
    return fail(Code::kCorrupt, "Fletcher-32 checksum of the chunk is wrong")
        .with_found(std::to_string(stored))
        .with_expected(std::to_string(computed));
  }

  Fletcher32 sum_;
  TailKeeper keeper_{kSumBytes};
};

}  // namespace

CodecResult fletcher32_decoder(const CodecSpec&, uint64_t) { return std::make_unique<FletcherDecoder>(); }
CodecResult fletcher32_encoder(const CodecSpec&, uint64_t) { return std::make_unique<FletcherEncoder>(); }
uint64_t fletcher32_bound(const CodecSpec&, uint64_t chunk_bytes) {
  return checked_add(chunk_bytes, kSumBytes).value_or(kUnknown);
}

}  // namespace shardwright::detail
