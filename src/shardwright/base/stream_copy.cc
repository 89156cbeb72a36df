#include "shardwright/base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace shardwright {

#if defined(__x86_64__)

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  constexpr size_t kLine = 64, kWord = sizeof(__m128i);
  size_t at = std::min<size_t>(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, at);
  for (; bytes - at >= kLine; at += kLine)
    for (size_t word = at; word < at + kLine; word += kWord)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + word),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + word)));
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();  // such writes are ordered by nothing else
}

#else

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace shardwright
