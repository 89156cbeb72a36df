#include "shardwright/codec/codec_table.h"

#include <array>

namespace shardwright {
namespace {

constexpr std::array<CodecRow, 12> kRows = {{
    {"zlib", "deflate with zlib's header and Adler-32 (HDF5's gzip filter)", false, detail::zlib_decoder,
     detail::zlib_encoder, detail::zlib_bound},
    {"gzip", "deflate with gzip's header and CRC-32", false, detail::gzip_decoder, detail::gzip_encoder,
     detail::gzip_bound},
    {"deflate", "deflate alone (zip members)", false, detail::deflate_decoder, detail::deflate_encoder,
     detail::deflate_bound},
    {"shuffle", "first bytes of all elements, then second bytes, ... (HDF5)", true, detail::shuffle_decoder,
     detail::shuffle_encoder, detail::shuffle_bound},
    {"fletcher32", "a checksum after the data (HDF5)", true, detail::fletcher32_decoder, detail::fletcher32_encoder,
     detail::fletcher32_bound},
    {"zstd", "Zstandard frames", false, detail::zstd_decoder, detail::zstd_encoder, detail::zstd_bound},
    {"lz4", "the decoded size and an LZ4 block (numcodecs)", false, detail::lz4_decoder, detail::lz4_encoder,
     detail::lz4_bound},
    {"blosc", "Blosc 1 chunks", false, detail::blosc_decoder, detail::blosc_encoder, detail::blosc_bound},
    {"crc32c", "CRC-32C after the data (zarr)", true, detail::crc32c_decoder, detail::crc32c_encoder,
     detail::crc32c_bound},
    {"transpose", "dimensions in another order (zarr)", true, detail::transpose_decoder, detail::transpose_encoder,
     detail::transpose_bound},
    {"sharding_indexed", "a shard of one chunk, its index after it (zarr)", true, detail::sharding_decoder,
     detail::sharding_encoder, detail::sharding_bound},
    {"small_int", "integers of less than a byte, one a byte (zarr)", true, detail::small_int_decoder,
     detail::small_int_encoder, detail::small_int_bound},
}};

}  // namespace

std::span<const CodecRow> codec_table() { return kRows; }

}  // namespace shardwright
