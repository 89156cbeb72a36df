// HDF5's shuffle: with n whole elements of s bytes, byte b of element e goes to b * n + e. What is left of a last, partial element stays
// at the end as it is.
#include <algorithm>

#include "shardwright/codec/codec_table.h"

namespace shardwright::detail {
namespace {

/// Puts each byte where it belongs as it arrives; the chunk is complete, and emitted, with the last one.
class Shuffle : public Codec {
 public:
  Shuffle(uint64_t element_bytes, uint64_t chunk_bytes)
      : element_bytes_(element_bytes), elements_(chunk_bytes / element_bytes), chunk_bytes_(chunk_bytes) {}
  uint64_t window_bytes() const override { return chunk_bytes_; }

  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    // Memory is taken with the first push, once the caller has it granted.
    if (chunk_.size() != chunk_bytes_) chunk_.resize(chunk_bytes_);
    if (in.size() > chunk_bytes_ - filled_) return wrong_size("more");
    const uint64_t shuffled = elements_ * element_bytes_;
    while (!in.empty()) {
      uint64_t taken = in.size();
      if (filled_ < shuffled) {
        taken = place(in.first(std::min<uint64_t>(taken, shuffled - filled_)));
      } else {
        std::copy(in.begin(), in.end(), chunk_.begin() + static_cast<ptrdiff_t>(filled_));
      }
      filled_ += taken;
      in = in.subspan(taken);
    }
    if (!last) return {};
    if (filled_ != chunk_bytes_) return wrong_size("fewer").with_found(std::to_string(filled_) + " bytes");
    return chunk_.empty() ? Status() : emit(chunk_);
  }

 protected:
  /// Puts some of `in`, which starts at filled_, into chunk_. Returns how many bytes: at least one.
  virtual uint64_t place(View in) = 0;

  const uint64_t element_bytes_, elements_, chunk_bytes_;
  uint64_t filled_ = 0;
  Bytes chunk_;

 private:
  Error wrong_size(const char* how) const {
    return fail(Code::kCorrupt, std::string("shuffled chunk has ") + how + " bytes than it must")
        .with_expected(std::to_string(chunk_bytes_) + " bytes");
  }
};

class ShuffleDecoder : public Shuffle {
  using Shuffle::Shuffle;
  uint64_t place(View in) override {
    const uint64_t byte = filled_ / elements_, first = filled_ % elements_;
    const uint64_t count = std::min<uint64_t>(in.size(), elements_ - first);
    std::byte* out = chunk_.data() + first * element_bytes_ + byte;
    for (uint64_t e = 0; e < count; ++e) out[e * element_bytes_] = in[e];
    return count;
  }
};

class ShuffleEncoder : public Shuffle {
  using Shuffle::Shuffle;
  uint64_t place(View in) override {
    const uint64_t first = filled_ / element_bytes_, byte = filled_ % element_bytes_;
    const uint64_t whole = byte == 0 ? in.size() / element_bytes_ : 0;
    if (whole == 0) {  // inside an element that came in parts
      chunk_[byte * elements_ + first] = in[0];
      return 1;
    }
    for (uint64_t b = 0; b < element_bytes_; ++b) {
      std::byte* out = chunk_.data() + b * elements_ + first;
      for (uint64_t e = 0; e < whole; ++e) out[e] = in[e * element_bytes_ + b];
    }
    return whole * element_bytes_;
  }
};

template <class Direction>
CodecResult make_shuffle(const CodecSpec& spec, uint64_t chunk_bytes) {
  if (spec.parameter == 0) return fail(Code::kCorrupt, "shuffle of elements of 0 bytes");
  if (chunk_bytes == kUnknown) return fail(Code::kUnsupported, "shuffle after a codec whose output has no fixed size");
  return std::make_unique<Direction>(spec.parameter, chunk_bytes);
}

}  // namespace

CodecResult shuffle_decoder(const CodecSpec& spec, uint64_t chunk_bytes) {
  return make_shuffle<ShuffleDecoder>(spec, chunk_bytes);
}
CodecResult shuffle_encoder(const CodecSpec& spec, uint64_t chunk_bytes) {
  return make_shuffle<ShuffleEncoder>(spec, chunk_bytes);
}
uint64_t shuffle_bound(const CodecSpec&, uint64_t chunk_bytes) { return chunk_bytes; }

}  // namespace shardwright::detail
