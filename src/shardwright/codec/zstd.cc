// zstd frames, streamed both ways.
#define ZSTD_STATIC_LINKING_ONLY  // what a stream takes, before it is made
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <memory>

#include "shardwright/codec/codec_table.h"

namespace shardwright::detail {
namespace {

constexpr size_t kOutputBytes = 128 * KiB;
constexpr int kLeastLevel = -131072, kMostLevel = 22;

struct FreeContexts {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

int level_of(const CodecSpec& spec) {
  auto level = static_cast<int64_t>(spec.parameter);
  return static_cast<int>(std::clamp<int64_t>(level, kLeastLevel - 1, kMostLevel + 1));
}

/// The largest window that this level makes: 512 KiB at level 1, 8 MiB at 19, 128 MiB at 22.
int window_log_of(int level) { return static_cast<int>(ZSTD_getCParams(level, ZSTD_CONTENTSIZE_UNKNOWN, 0).windowLog); }

/// Memory is taken with the first push, once the caller has it granted. Frames whose window is larger than their level's are refused.
class Decoder : public Codec {
 public:
  explicit Decoder(int window_log) : window_log_(window_log) {}
  uint64_t window_bytes() const override { return ZSTD_estimateDStreamSize(size_t{1} << window_log_) + kOutputBytes; }

  bool decode_into(MutableView whole) override {
    whole_ = whole;
    return true;
  }

  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(start());
    while (!in.empty()) {
      // The first byte of a frame alone: given a whole frame at once the library takes a shorter way, with other limits.
      View part = ended_ ? in.first(1) : in;
      SHARDWRIGHT_TRY(decode(part, emit));
      in = in.subspan(part.size());
    }
    if (!last) return {};
    if (!ended_ || !any_) return corrupt("the compressed data ends early");
    return {};
  }

 private:
  Status start() {
    if (context_) return {};
    context_.reset(ZSTD_createDCtx());
    if (!context_) return fail(Code::kResourceExhausted, "zstd has no memory to decode");
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, window_log_);
    if (whole_.data() != nullptr) {
      // The output is the window: nothing is copied out of another.
      ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_stableOutBuffer, 1);
    } else {
      output_.resize(kOutputBytes);
    }
    return {};
  }

  Status decode(View& part, const std::function<Status(View)>& emit) {
    ZSTD_inBuffer in{part.data(), part.size(), 0};
    bool in_place = whole_.data() != nullptr;
    MutableView room = in_place ? whole_ : MutableView(output_);
    while (true) {
      ZSTD_outBuffer out{room.data(), room.size(), in_place ? written_ : 0};
      size_t before = out.pos;
      size_t left = ZSTD_decompressStream(context_.get(), &out, &in);
      if (ZSTD_isError(left)) return error_of(left);
      any_ = true;
      ended_ = left == 0;
      written_ = out.pos;
      if (out.pos > before) SHARDWRIGHT_TRY(emit(View(room).subspan(before, out.pos - before)));
      if (ended_) break;  // the next frame starts with its first byte
      if (in.pos == in.size && (in_place || out.pos < out.size)) break;
    }
    taken_ += in.pos;
    part = part.first(in.pos);
    return {};
  }

  Status error_of(size_t code) const {
    if (ZSTD_getErrorCode(code) != ZSTD_error_frameParameter_windowTooLarge) return corrupt(ZSTD_getErrorName(code));
    return fail(Code::kUnsupported, "zstd: the window of this frame is larger than its level says")
        .with_expected("at most " + std::to_string(uint64_t{1} << window_log_) + " bytes");
  }
  Error corrupt(const std::string& what) const {
    return fail(Code::kCorrupt, "zstd: " + what + ", after " + std::to_string(taken_) + " compressed bytes");
  }

  const int window_log_;
  std::unique_ptr<ZSTD_DCtx, FreeContexts> context_;
  Bytes output_;
  MutableView whole_{};  ///< instead of output_, where it was offered
  size_t written_ = 0;   ///< of it
  uint64_t taken_ = 0;
  bool ended_ = true, any_ = false;
};

/// One frame with its content size, no checksum, no workers. The end is asked for by itself, so that how the data came leaves no trace.
class Encoder : public Codec {
 public:
  Encoder(int level, uint64_t chunk_bytes) : level_(level), chunk_bytes_(chunk_bytes) {}
  uint64_t window_bytes() const override {
    auto parameters = ZSTD_getCParams(level_, chunk_bytes_ == kUnknown ? ZSTD_CONTENTSIZE_UNKNOWN : chunk_bytes_, 0);
    return ZSTD_estimateCStreamSize_usingCParams(parameters) + kOutputBytes;
  }

  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(start());
    SHARDWRIGHT_TRY(encode(in, ZSTD_e_continue, emit));
    return last ? encode({}, ZSTD_e_end, emit) : Status();
  }

 private:
  Status start() {
    if (context_) return {};
    context_.reset(ZSTD_createCCtx());
    if (!context_) return fail(Code::kResourceExhausted, "zstd has no memory to encode");
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level_);
    if (chunk_bytes_ != kUnknown) ZSTD_CCtx_setPledgedSrcSize(context_.get(), chunk_bytes_);
    output_.resize(kOutputBytes);
    return {};
  }

  Status encode(View part, ZSTD_EndDirective end, const std::function<Status(View)>& emit) {
    ZSTD_inBuffer in{part.data(), part.size(), 0};
    while (true) {
      ZSTD_outBuffer out{output_.data(), output_.size(), 0};
      size_t left = ZSTD_compressStream2(context_.get(), &out, &in, end);
      if (ZSTD_isError(left)) return fail(Code::kInternal, std::string("zstd: ") + ZSTD_getErrorName(left));
      if (out.pos > 0) SHARDWRIGHT_TRY(emit(View(output_).first(out.pos)));
      bool done = end == ZSTD_e_end ? left == 0 : in.pos == in.size;
      if (done) return {};
    }
  }

  const int level_;
  const uint64_t chunk_bytes_;
  std::unique_ptr<ZSTD_CCtx, FreeContexts> context_;
  Bytes output_;
};

}  // namespace

CodecResult zstd_decoder(const CodecSpec& spec, uint64_t) {
  return std::make_unique<Decoder>(window_log_of(std::min(level_of(spec), kMostLevel)));
}
CodecResult zstd_encoder(const CodecSpec& spec, uint64_t chunk_bytes) {
  int level = level_of(spec);
  if (level < kLeastLevel || level > kMostLevel)
    return fail(Code::kInvalidArgument, "zstd has no such level")
        .with_found(std::to_string(static_cast<int64_t>(spec.parameter)))
        .with_expected(std::to_string(kLeastLevel) + " to " + std::to_string(kMostLevel));
  return std::make_unique<Encoder>(level, chunk_bytes);
}
/// The library's bound, and what blocks cut by the stream may add.
uint64_t zstd_bound(const CodecSpec&, uint64_t chunk_bytes) {
  return checked_add(chunk_bytes, (chunk_bytes >> 8) + 512).value_or(kUnknown);
}

}  // namespace shardwright::detail
