/// The factories that codec_table.cc puts into rows: one pair per codec, each codec in a file of its own.
#pragma once

#include "shardwright/codec/codec.h"

namespace shardwright::detail {

using CodecResult = Result<std::unique_ptr<Codec>>;

CodecResult zlib_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult zlib_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t zlib_bound(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult gzip_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult gzip_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t gzip_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult deflate_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult deflate_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t deflate_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult shuffle_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult shuffle_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t shuffle_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult fletcher32_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult fletcher32_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t fletcher32_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult zstd_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult zstd_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t zstd_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult lz4_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult lz4_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t lz4_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult blosc_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult blosc_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t blosc_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult crc32c_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult crc32c_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t crc32c_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult small_int_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult small_int_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t small_int_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult transpose_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult transpose_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t transpose_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult sharding_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult sharding_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t sharding_bound(const CodecSpec& spec, uint64_t chunk_bytes);

}  // namespace shardwright::detail
