// CRC-32C (checksum.h): the processor's instruction where there is one, else eight tables.
#include <array>

#include "shardwright/base/checksum.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace shardwright {
namespace {

// Polynomials over GF(2) modulo Castagnoli's, bit-reflected: bit 31 is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = 1u << 31;

constexpr uint32_t times_x(uint32_t a) { return a & 1 ? a >> 1 ^ kPolynomial : a >> 1; }

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = times_x(b);
  }
  return product;
}

/// [k][d] = x^(8 * d * 16^k): d * 16^k zero bytes multiply a crc by that.
constexpr std::array<std::array<uint32_t, 16>, 16> make_shifts() {
  std::array<std::array<uint32_t, 16>, 16> shifts{};
  uint32_t step = kOne >> 8;
  for (auto& row : shifts) {
    row[0] = kOne;
    for (size_t d = 1; d < row.size(); ++d) row[d] = multiply(row[d - 1], step);
    step = multiply(row[15], step);
  }
  return shifts;
}
constexpr auto kShifts = make_shifts();

/// x^(8 * bytes).
uint32_t shift_of(uint64_t bytes) {
  uint32_t power = kOne;
  for (size_t k = 0; bytes != 0; bytes >>= 4, ++k)
    if (bytes & 15) power = multiply(kShifts[k][bytes & 15], power);
  return power;
}

using Table = std::array<uint32_t, 256>;

/// [k][b]: crc of byte b followed by k zero bytes.
constexpr std::array<Table, 8> make_slices() {
  std::array<Table, 8> slices{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    slices[0][b] = crc;
  }
  for (size_t k = 1; k < slices.size(); ++k)
    for (size_t b = 0; b < 256; ++b) {
      uint32_t before = slices[k - 1][b];
      slices[k][b] = before >> 8 ^ slices[0][before & 255];
    }
  return slices;
}
constexpr auto kSlices = make_slices();

// Both work on the register itself: neither starts nor ends with the inversion that the checksum has.

uint32_t update_by_table(uint32_t crc, const std::byte* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    auto word = load_le<uint64_t>({data, 8}) ^ crc;
    crc = kSlices[7][word & 255] ^ kSlices[6][word >> 8 & 255] ^ kSlices[5][word >> 16 & 255] ^
          kSlices[4][word >> 24 & 255] ^ kSlices[3][word >> 32 & 255] ^ kSlices[2][word >> 40 & 255] ^
          kSlices[1][word >> 48 & 255] ^ kSlices[0][word >> 56];
  }
  for (; size > 0; ++data, --size) crc = crc >> 8 ^ kSlices[0][(crc ^ static_cast<uint32_t>(*data)) & 255];
  return crc;
}

#if defined(__x86_64__)

/// Multiplies by a fixed x^n with four look-ups.
class Shift {
 public:
  explicit Shift(uint64_t bytes) {
    uint32_t power = shift_of(bytes);
    for (uint32_t k = 0; k < 4; ++k)
      for (uint32_t b = 0; b < 256; ++b) tables_[k][b] = multiply(b << (8 * k), power);
  }
  uint32_t operator()(uint32_t crc) const {
    return tables_[0][crc & 255] ^ tables_[1][crc >> 8 & 255] ^ tables_[2][crc >> 16 & 255] ^ tables_[3][crc >> 24];
  }

 private:
  std::array<Table, 4> tables_;
};

/// The instruction takes 3 cycles but one can start in each: three neighbouring blocks run side by side, and their crcs are joined.
template <size_t kBlock>
__attribute__((target("sse4.2"))) uint64_t update_three(uint64_t crc, const std::byte*& data, size_t& size) {
  static const Shift shift(kBlock);
  for (; size >= 3 * kBlock; data += 3 * kBlock, size -= 3 * kBlock) {
    uint64_t second = 0, third = 0;
    for (const std::byte *at = data, *end = data + kBlock; at < end; at += 8) {
      crc = _mm_crc32_u64(crc, load_le<uint64_t>({at, 8}));
      second = _mm_crc32_u64(second, load_le<uint64_t>({at + kBlock, 8}));
      third = _mm_crc32_u64(third, load_le<uint64_t>({at + 2 * kBlock, 8}));
    }
    crc = shift(static_cast<uint32_t>(crc)) ^ second;
    crc = shift(static_cast<uint32_t>(crc)) ^ third;
  }
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t update_by_instruction(uint32_t crc, const std::byte* data, size_t size) {
  uint64_t wide = crc;
  wide = update_three<8192>(wide, data, size);
  wide = update_three<256>(wide, data, size);
  for (; size >= 8; data += 8, size -= 8) wide = _mm_crc32_u64(wide, load_le<uint64_t>({data, 8}));
  auto narrow = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(*data));
  return narrow;
}

bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

#else

bool has_instruction() { return false; }
uint32_t update_by_instruction(uint32_t crc, const std::byte* data, size_t size) {
  return update_by_table(crc, data, size);
}

#endif

}  // namespace

namespace detail {
uint32_t crc32c_by_table(View bytes, uint32_t crc) { return ~update_by_table(~crc, bytes.data(), bytes.size()); }
}  // namespace detail

uint32_t crc32c(View bytes, uint32_t crc) {
  if (!has_instruction()) return detail::crc32c_by_table(bytes, crc);
  return ~update_by_instruction(~crc, bytes.data(), bytes.size());
}

uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b) {
  return multiply(shift_of(length_b), crc_a) ^ crc_b;
}

Crc32cZeros::Crc32cZeros(uint64_t count) : power_(shift_of(count)) {}
uint32_t Crc32cZeros::after(uint32_t crc) const { return ~multiply(power_, ~crc); }

}  // namespace shardwright
