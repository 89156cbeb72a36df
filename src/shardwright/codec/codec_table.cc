#include "shardwright/codec/codec_table.h"

#include <array>

namespace shardwright {
namespace {

constexpr std::array<CodecRow, 4> kRows = {{
    {"zlib", "deflate with zlib's header and Adler-32 (HDF5's gzip filter)", false, detail::zlib_decoder,
     detail::zlib_encoder, detail::zlib_bound},
    {"gzip", "deflate with gzip's header and CRC-32", false, detail::gzip_decoder, detail::gzip_encoder,
     detail::gzip_bound},
    {"shuffle", "first bytes of all elements, then second bytes, ... (HDF5)", true, detail::shuffle_decoder,
     detail::shuffle_encoder, detail::shuffle_bound},
    {"fletcher32", "a checksum after the data (HDF5)", true, detail::fletcher32_decoder, detail::fletcher32_encoder,
     detail::fletcher32_bound},
}};

}  // namespace

std::span<const CodecRow> codec_table() { return kRows; }

}  // namespace shardwright
