// LZ4 as numcodecs has it: the decoded size as four little-endian bytes, then one LZ4 block. A block is decoded whole.
#include <lz4.h>

#include "shardwright/codec/whole_chunk.h"

namespace shardwright::detail {
namespace {

constexpr size_t kSizeBytes = 4;

class Decoder : public WholeChunk {
 public:
  explicit Decoder(uint64_t chunk_bytes)
      : WholeChunk("lz4", lz4_bound({}, chunk_bytes), chunk_bytes), size_(chunk_bytes) {}

 private:
  Status turn(View whole, const std::function<Status(View)>& emit) override {
    if (whole.size() < kSizeBytes || load_le<uint32_t>(whole) != size_)
      return corrupt("the size it states is not that of the chunk");
    View block = whole.subspan(kSizeBytes);
    Bytes out(size_);
    int made = LZ4_decompress_safe(reinterpret_cast<const char*>(block.data()), reinterpret_cast<char*>(out.data()),
                                   static_cast<int>(block.size()), static_cast<int>(out.size()));
    if (made < 0 || static_cast<uint64_t>(made) != size_) return corrupt("not a complete LZ4 block");
    return out.empty() ? Status() : emit(out);
  }
  const uint64_t size_;
};

class Encoder : public WholeChunk {
 public:
  explicit Encoder(uint64_t chunk_bytes) : WholeChunk("lz4", chunk_bytes, lz4_bound({}, chunk_bytes)) {}

 private:
  Status turn(View whole, const std::function<Status(View)>& emit) override {
    Bytes out;
    append_le(out, static_cast<uint32_t>(whole.size()));
    out.resize(lz4_bound({}, whole.size()));
    int made = LZ4_compress_default(reinterpret_cast<const char*>(whole.data()),
                                    reinterpret_cast<char*>(out.data() + kSizeBytes), static_cast<int>(whole.size()),
                                    static_cast<int>(out.size() - kSizeBytes));
    if (made <= 0) return fail(Code::kInternal, "lz4: no room to encode");
    return emit(View(out).first(kSizeBytes + static_cast<size_t>(made)));
  }
};

template <class Direction>
CodecResult make(uint64_t chunk_bytes) {
  if (chunk_bytes == kUnknown) return fail(Code::kUnsupported, "lz4 after a codec whose output has no fixed size");
  if (chunk_bytes > LZ4_MAX_INPUT_SIZE)
    return fail(Code::kUnsupported, "lz4 has no chunks of this size")
        .with_found(std::to_string(chunk_bytes) + " bytes")
        .with_expected("at most " + std::to_string(LZ4_MAX_INPUT_SIZE) + " bytes");
  return std::make_unique<Direction>(chunk_bytes);
}

}  // namespace

CodecResult lz4_decoder(const CodecSpec&, uint64_t chunk_bytes) { return make<Decoder>(chunk_bytes); }
CodecResult lz4_encoder(const CodecSpec&, uint64_t chunk_bytes) { return make<Encoder>(chunk_bytes); }
uint64_t lz4_bound(const CodecSpec&, uint64_t chunk_bytes) {
  return checked_add(chunk_bytes, chunk_bytes / 255 + 16 + kSizeBytes).value_or(kUnknown);
}

}  // namespace shardwright::detail
