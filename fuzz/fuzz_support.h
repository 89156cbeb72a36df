/// What fuzz targets share: a claim that must hold, and bytes made into a store.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "shardwright/store/store.h"

/// A claim of the contract; a libFuzzer finding when it does not hold.
#define FUZZ_CLAIM(condition)                                                      \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (false)

namespace shardwright {

inline View fuzz_view(const uint8_t* data, size_t size) { return {reinterpret_cast<const std::byte*>(data), size}; }

/// Puts one object into a memory store.
inline void put_object(Store& store, std::string_view key, View bytes) {
  auto transaction = store.begin("");
  FUZZ_CLAIM(transaction.ok());
  auto writer = (*transaction)->create(key, bytes.size());
  FUZZ_CLAIM(writer.ok());
  const WriteOp op{0, bytes};
  FUZZ_CLAIM(bytes.empty() || (*writer)->write({&op, 1}).ok());
  FUZZ_CLAIM((*writer)->finish(bytes.size()).ok());
  Publication publication;
  publication.keys.emplace_back(key);
  FUZZ_CLAIM((*transaction)->commit(publication).ok());
}

/// A memory store that holds one object.
inline std::unique_ptr<Store> store_of(std::string_view key, View bytes) {
  auto store = open_memory_store();
  put_object(*store, key, bytes);
  return store;
}

/// A good safetensors file with the tensors x and y.
inline Bytes good_shard() {
  constexpr std::string_view kHeader =
      R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
  Bytes shard;
  append_le<uint64_t>(shard, kHeader.size());
  shard.insert(shard.end(), view_of(kHeader).begin(), view_of(kHeader).end());
  append_le<uint64_t>(shard, 0);
  return shard;
}

}  // namespace shardwright
