// Blosc 1 chunks. The header says how it was made, so decoding needs no parameters. Decoded whole.
#include <blosc.h>

#include "shardwright/codec/whole_chunk.h"

namespace shardwright::detail {
namespace {

class Decoder : public WholeChunk {
 public:
  explicit Decoder(uint64_t chunk_bytes)
      : WholeChunk("blosc", blosc_bound({}, chunk_bytes), chunk_bytes), size_(chunk_bytes) {}

 private:
  Status turn(View whole, const std::function<Status(View)>& emit) override {
    size_t size = 0;
    if (whole.size() < BLOSC_MIN_HEADER_LENGTH || blosc_cbuffer_validate(whole.data(), whole.size(), &size) != 0)
      return corrupt("not a complete Blosc chunk");
    if (size != size_) return corrupt("the size it states is not that of the chunk");
    Bytes out(size);
    int made = out.empty() ? 0 : blosc_decompress_ctx(whole.data(), out.data(), out.size(), 1);
    if (made < 0 || static_cast<uint64_t>(made) != size_) return corrupt("the compressed data is damaged");
    return out.empty() ? Status() : emit(out);
  }
  const uint64_t size_;
};

class Encoder : public WholeChunk {
 public:
  Encoder(const BloscParameters& parameters, uint64_t chunk_bytes)
      : WholeChunk("blosc", chunk_bytes, blosc_bound({}, chunk_bytes)), parameters_(parameters) {}

 private:
  Status turn(View whole, const std::function<Status(View)>& emit) override {
    Bytes out(blosc_bound({}, whole.size()));
    const char* name = nullptr;
    if (blosc_compcode_to_compname(parameters_.compressor, &name) < 0)
      return fail(Code::kUnsupported, "blosc: this build has no such compressor");
    int made = blosc_compress_ctx(parameters_.level, parameters_.shuffle, parameters_.element_bytes, whole.size(),
                                  whole.data(), out.data(), out.size(), name, 0, 1);
    if (made <= 0) return fail(Code::kInternal, "blosc: cannot encode");
    return emit(View(out).first(static_cast<size_t>(made)));
  }
  const BloscParameters parameters_;
};

Status check_size(uint64_t chunk_bytes) {
  if (chunk_bytes == kUnknown) return fail(Code::kUnsupported, "blosc after a codec whose output has no fixed size");
  if (chunk_bytes <= BLOSC_MAX_BUFFERSIZE) return {};
  return fail(Code::kUnsupported, "blosc has no chunks of this size")
      .with_found(std::to_string(chunk_bytes) + " bytes")
      .with_expected("at most " + std::to_string(BLOSC_MAX_BUFFERSIZE) + " bytes");
}

}  // namespace

CodecResult blosc_decoder(const CodecSpec&, uint64_t chunk_bytes) {
  SHARDWRIGHT_TRY(check_size(chunk_bytes));
  return std::make_unique<Decoder>(chunk_bytes);
}
CodecResult blosc_encoder(const CodecSpec& spec, uint64_t chunk_bytes) {
  SHARDWRIGHT_TRY(check_size(chunk_bytes));
  auto parameters = BloscParameters::unpack(spec.parameter);
  if (parameters.level > 9 || parameters.shuffle > 2 || parameters.element_bytes == 0 ||
      parameters.element_bytes > BLOSC_MAX_TYPESIZE)
    return fail(Code::kInvalidArgument, "blosc has no such level, shuffle or element size");
  return std::make_unique<Encoder>(parameters, chunk_bytes);
}
uint64_t blosc_bound(const CodecSpec&, uint64_t chunk_bytes) {
  return checked_add(chunk_bytes, BLOSC_MAX_OVERHEAD).value_or(kUnknown);
}

}  // namespace shardwright::detail
