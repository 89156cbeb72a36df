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

CodecResult shuffle_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult shuffle_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t shuffle_bound(const CodecSpec& spec, uint64_t chunk_bytes);

CodecResult fletcher32_decoder(const CodecSpec& spec, uint64_t chunk_bytes);
CodecResult fletcher32_encoder(const CodecSpec& spec, uint64_t chunk_bytes);
uint64_t fletcher32_bound(const CodecSpec& spec, uint64_t chunk_bytes);

}  // namespace shardwright::detail
