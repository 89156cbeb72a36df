#include "shardwright/base/zstd.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <string>

namespace shardwright {
namespace {

struct FreeDecoder {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

Error too_large(uint64_t cap) {
  return fail(Code::kResourceExhausted, "compressed metadata is larger than anything expected here once decoded")
      .with_expected("at most " + std::to_string(cap) + " bytes");
}

}  // namespace

Result<Bytes> zstd_decompress(View frames, uint64_t cap) {
  std::unique_ptr<ZSTD_DCtx, FreeDecoder> context(ZSTD_createDCtx());
  if (!context) return fail(Code::kResourceExhausted, "zstd has no memory to decode");
  Bytes out;
  ZSTD_inBuffer in{frames.data(), frames.size(), 0};
  size_t left = 1;  // until a frame has ended
  while (true) {
    size_t held = out.size();
    if (held > cap) return too_large(cap);
    out.resize(held + std::max<size_t>(64 * KiB, held / 2));
    ZSTD_outBuffer to{out.data() + held, out.size() - held, 0};
    left = ZSTD_decompressStream(context.get(), &to, &in);
    out.resize(held + to.pos);
    if (ZSTD_isError(left)) return fail(Code::kCorrupt, std::string("zstd: ") + ZSTD_getErrorName(left));
    if (in.pos == in.size && (left == 0 || to.pos < to.size)) break;
  }
  if (left != 0) return fail(Code::kCorrupt, "zstd: the compressed data ends early");
  if (out.size() > cap) return too_large(cap);
  return out;
}

Result<Bytes> zstd_compress(View bytes, int level) {
  Bytes out(ZSTD_compressBound(bytes.size()));
  size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(size)) return fail(Code::kInternal, std::string("zstd: ") + ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

}  // namespace shardwright
