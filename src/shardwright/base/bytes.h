/// Byte views, little-endian access and checked arithmetic for sizes that come from files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;
using MutableView = std::span<std::byte>;

inline constexpr uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;
/// A length or offset that is not known yet.
inline constexpr uint64_t kUnknown = ~0ull;

inline View view_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }
inline std::string_view text_of(View bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline Bytes bytes_of(std::string_view text) { return {view_of(text).begin(), view_of(text).end()}; }

/// nullopt on overflow of 64 bits.
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Little-endian integer at the start of `bytes`. REQUIRES: bytes.size() >= sizeof(T); host is little-endian.
template <class T>
T load_le(View bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
template <class T>
void append_le(Bytes& out, T value) {
  auto raw = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), raw, raw + sizeof value);
}

inline uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace shardwright
