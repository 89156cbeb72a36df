// zlib, gzip and deflate: one compression, two wrappings and none.
#include <zlib.h>

#include <algorithm>

#include "shardwright/codec/codec_table.h"

namespace shardwright::detail {
namespace {

constexpr size_t kOutputBytes = 64 * KiB;
/// From zlib's zconf.h: 32 KiB window and about 10 KiB of tables to decode; 256 KiB and a few to encode.
constexpr uint64_t kDecoderBytes = kOutputBytes + 48 * KiB, kEncoderBytes = kOutputBytes + 280 * KiB;
/// zlib counts input in 32 bits.
constexpr size_t kInputBytes = 1u << 30;

/// zlib's windowBits: 15, 16 more for gzip's header, negative for none.
enum Wrapping : int { kZlib = 15, kGzip = 15 + 16, kBare = -15 };
const char* name_of(Wrapping wrapping) { return wrapping == kGzip ? "gzip" : wrapping == kZlib ? "zlib" : "deflate"; }

void set_input(z_stream& stream, View part) {
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(part.data()));  // zlib only reads it
  stream.avail_in = static_cast<uInt>(part.size());
}

/// Memory is taken with the first push, once the caller has it granted.
class DeflateCodec : public Codec {
 protected:
  explicit DeflateCodec(Wrapping wrapping) : wrapping_(wrapping) {}
  void set_output() {
    stream_.next_out = reinterpret_cast<Bytef*>(output_.data());
    stream_.avail_out = static_cast<uInt>(output_.size());
  }
  Status emit_output(const std::function<Status(View)>& emit) {
    View made = View(output_).first(output_.size() - stream_.avail_out);
    return made.empty() ? Status() : emit(made);
  }

  Wrapping wrapping_;
  bool started_ = false;
  z_stream stream_{};
  Bytes output_;
};

class Inflater : public DeflateCodec {
 public:
  explicit Inflater(Wrapping wrapping) : DeflateCodec(wrapping) {}
  ~Inflater() override {
    if (started_) inflateEnd(&stream_);
  }
  uint64_t window_bytes() const override { return kDecoderBytes; }

  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(start());
    while (!in.empty()) {
      View part = in.first(std::min(in.size(), kInputBytes));
      SHARDWRIGHT_TRY(inflate_part(part, emit));
      in = in.subspan(part.size());
    }
    if (last && !ended_) return corrupt("the compressed data ends early");
    return {};
  }

 private:
  Status start() {
    if (started_) return {};
    if (inflateInit2(&stream_, wrapping_) != Z_OK)
      return fail(Code::kResourceExhausted, "zlib has no memory to decode");
    started_ = true;
    output_.resize(kOutputBytes);
    return {};
  }

  Status inflate_part(View part, const std::function<Status(View)>& emit) {
    set_input(stream_, part);
    // Output may be still to come when the input is used up; that there is no more shows as Z_BUF_ERROR.
    bool full = false;
    while ((stream_.avail_in > 0 || full) && !ended_) {
      set_output();
      int code = ::inflate(&stream_, Z_NO_FLUSH);
      ended_ = code == Z_STREAM_END;
      full = stream_.avail_out == 0;
      if (code != Z_OK && !ended_ && !(code == Z_BUF_ERROR && stream_.avail_in == 0))
        return corrupt(stream_.msg != nullptr ? stream_.msg : "not compressed data");
      SHARDWRIGHT_TRY(emit_output(emit));
    }
    if (stream_.avail_in > 0) return corrupt("bytes follow the end of the compressed data");
    return {};
  }

  Error corrupt(const char* what) const {
    return fail(Code::kCorrupt, std::string(name_of(wrapping_)) + ": " + what + ", after " +
                                    std::to_string(stream_.total_in) + " compressed and " +
                                    std::to_string(stream_.total_out) + " decoded bytes");
  }

  bool ended_ = false;
};

class Deflater : public DeflateCodec {
 public:
  Deflater(Wrapping wrapping, int level) : DeflateCodec(wrapping), level_(level) {}
  ~Deflater() override {
    if (started_) deflateEnd(&stream_);
  }
  uint64_t window_bytes() const override { return kEncoderBytes; }

  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(start());
    while (in.size() > kInputBytes) {
      SHARDWRIGHT_TRY(deflate_part(in.first(kInputBytes), Z_NO_FLUSH, emit));
      in = in.subspan(kInputBytes);
    }
    return deflate_part(in, last ? Z_FINISH : Z_NO_FLUSH, emit);
  }

 private:
  Status start() {
    if (started_) return {};
    constexpr int kMemoryLevel = 8;  // zlib's default: what its own one-shot call uses
    if (deflateInit2(&stream_, level_, Z_DEFLATED, wrapping_, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
      return fail(Code::kResourceExhausted, "zlib has no memory to encode");
    started_ = true;
    output_.resize(kOutputBytes);
    return {};
  }

  Status deflate_part(View part, int flush, const std::function<Status(View)>& emit) {
    set_input(stream_, part);
    do {
      set_output();
      ::deflate(&stream_, flush);
      SHARDWRIGHT_TRY(emit_output(emit));
    } while (stream_.avail_out == 0);
    return {};
  }

  int level_;
};

CodecResult make_encoder(Wrapping wrapping, const CodecSpec& spec) {
  // Level 0 cuts its blocks by how the input arrives, so its bytes would not depend on the data only.
  if (spec.parameter < 1 || spec.parameter > 9)
    return fail(Code::kInvalidArgument, std::string(name_of(wrapping)) + " has no such level")
        .with_found(std::to_string(spec.parameter))
        .with_expected("1 to 9");
  return std::make_unique<Deflater>(wrapping, static_cast<int>(spec.parameter));
}

/// zlib's own bound for its default window and memory level, at any level; `wrapping` bytes of header and trailer.
uint64_t bound(uint64_t bytes, uint64_t wrapping) {
  return checked_add(bytes, (bytes >> 12) + (bytes >> 14) + (bytes >> 25) + 7 + wrapping).value_or(kUnknown);
}

}  // namespace

CodecResult zlib_decoder(const CodecSpec&, uint64_t) { return std::make_unique<Inflater>(kZlib); }
CodecResult gzip_decoder(const CodecSpec&, uint64_t) { return std::make_unique<Inflater>(kGzip); }
CodecResult deflate_decoder(const CodecSpec&, uint64_t) { return std::make_unique<Inflater>(kBare); }
CodecResult zlib_encoder(const CodecSpec& spec, uint64_t) { return make_encoder(kZlib, spec); }
CodecResult gzip_encoder(const CodecSpec& spec, uint64_t) { return make_encoder(kGzip, spec); }
CodecResult deflate_encoder(const CodecSpec& spec, uint64_t) { return make_encoder(kBare, spec); }
uint64_t zlib_bound(const CodecSpec&, uint64_t chunk_bytes) { return bound(chunk_bytes, 6); }
uint64_t gzip_bound(const CodecSpec&, uint64_t chunk_bytes) { return bound(chunk_bytes, 18); }
uint64_t deflate_bound(const CodecSpec&, uint64_t chunk_bytes) { return bound(chunk_bytes, 0); }

}  // namespace shardwright::detail
