// convert() against NumPy and ml_dtypes: every code of the 8- and 16-bit types, boundary and random F32 and F64, every pair.
// tests/make_convert_golden.py made the expected checksums and values; inputs are built by the same rules here.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "shardwright/base/checksum.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

constexpr DType kFloats[] = {DType::kF64,    DType::kF32,           DType::kF16,        DType::kBF16,
                             DType::kF8E5M2, DType::kF8E4M3,        DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ,
                             DType::kF8E3M4, DType::kF8E4M3B11FNUZ, DType::kF6E2M3,     DType::kF6E3M2,
                             DType::kF4};
constexpr uint64_t kBlock = 65536;

using Pair = std::pair<std::string, std::string>;
using Codes = std::vector<uint64_t>;

struct Golden {
  std::map<Pair, std::vector<uint32_t>> blocks;
  std::map<std::string, Codes> edges;
  std::map<Pair, Codes> edged;
};

Codes read_codes(std::istream& line) {
  Codes codes;
  for (std::string word; line >> word;) codes.push_back(std::stoull(word, nullptr, 16));
  return codes;
}

Golden read_golden() {
  Golden golden;
  std::ifstream file(SHARDWRIGHT_TEST_DATA "/convert/golden.txt");
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string kind, from, to, index, crc;
    line >> kind >> from;
    if (kind == "edges") golden.edges[from] = read_codes(line);
    if (kind == "edged" && line >> to) golden.edged[{from, to}] = read_codes(line);
    if (kind == "block" && line >> to >> index >> crc) {
      golden.blocks[{from, to}].push_back(static_cast<uint32_t>(std::stoul(crc, nullptr, 16)));
    }
  }
  return golden;
}

const Golden& golden() {
  static const Golden data = read_golden();
  return data;
}

std::string name_of(DType dtype) { return std::string(dtype_row(dtype).name); }

uint64_t splitmix(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

Bytes f32_inputs() {
  Bytes out;
  for (uint32_t high = 0; high < 65536; ++high) {
    for (uint32_t low :
         {0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF}) {
      append_le(out, high << 16 | low);
    }
  }
  for (uint64_t i = 0; i < 65536; ++i) append_le(out, static_cast<uint32_t>(splitmix(i)));
  return out;
}

Bytes f64_inputs() {
  std::vector<uint64_t> exponents{0, 1, 2046, 2047};
  for (uint64_t e = 1159; e >= 863; --e) exponents.insert(exponents.begin() + 2, e);
  Bytes out;
  for (uint64_t sign : {0, 1}) {
    for (uint64_t exponent : exponents) {
      for (uint64_t mantissa = 0; mantissa < 256; ++mantissa) {
        for (uint64_t low : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << 44) - 1}) {
          append_le(out, sign << 63 | exponent << 52 | mantissa << 44 | low);
        }
      }
    }
  }
  for (uint64_t i = 0; i < (1 << 18); ++i) {
    const uint64_t r = splitmix(2 * i), q = splitmix(2 * i + 1);
    const uint64_t drop = 52 - (q >> 16) % 53;
    const uint64_t mantissa = (r & ((uint64_t{1} << 52) - 1)) >> drop << drop;
    append_le(out, (r & (uint64_t{1} << 63)) | (((863 + q % 320) << 52) + mantissa + (q >> 32) % 3 - 1));
  }
  return out;
}

Bytes make_inputs(DType from) {
  Bytes out;
  switch (dtype_row(from).block_bytes * 100 + dtype_row(from).block_elems) {
    case 801: return f64_inputs();
    case 401: return f32_inputs();
    case 201:
      for (uint32_t code = 0; code < 65536; ++code) append_le(out, static_cast<uint16_t>(code));
      return out;
    case 101:
      for (uint32_t code = 0; code < 256; ++code) append_le(out, static_cast<uint8_t>(code));
      return out;
    default:  // packed: random bytes hold every code at every place
      for (uint64_t i = 0; i < 3072; ++i) append_le(out, static_cast<uint8_t>(splitmix(i)));
      return out;
  }
}

const Bytes& inputs(DType from) {
  static std::map<DType, Bytes> made;
  auto [entry, is_new] = made.try_emplace(from);
  if (is_new) entry->second = make_inputs(from);
  return entry->second;
}

uint64_t code_bits(DType dtype) { return dtype_row(dtype).block_bytes * 8u / dtype_row(dtype).block_elems; }

Bytes packed(DType dtype, const Codes& codes) {
  Bytes out(*bytes_of_elements(dtype, codes.size()));
  const uint64_t bits = code_bits(dtype);
  for (uint64_t i = 0; i < codes.size() * bits; ++i) {
    if (codes[i / bits] >> (i % bits) & 1) out[i / 8] |= std::byte{1} << static_cast<int>(i % 8);
  }
  return out;
}

uint64_t code_at(DType dtype, const Bytes& data, uint64_t index) {
  uint64_t code = 0;
  const uint64_t bits = code_bits(dtype);
  for (uint64_t i = 0; i < bits; ++i) {
    const uint64_t at = index * bits + i;
    code |= uint64_t{std::to_integer<uint8_t>(data[at / 8] >> static_cast<int>(at % 8) & std::byte{1})} << i;
  }
  return code;
}

std::string hex(uint64_t code) {
  std::ostringstream out;
  out << "0x" << std::hex << code;
  return out.str();
}

class ConvertGolden : public testing::TestWithParam<std::tuple<DType, DType>> {
 protected:
  DType from() const { return std::get<0>(GetParam()); }
  DType to() const { return std::get<1>(GetParam()); }
  Bytes converted(const Bytes& in, uint64_t elements) {
    Bytes out(*bytes_of_elements(to(), elements), std::byte{0xA5});
    Status status = convert(from(), in, to(), out);
    EXPECT_TRUE(status.ok()) << status.error().text();
    return out;
  }
};

TEST_P(ConvertGolden, EdgeValues) {
  const Codes& edges = golden().edges.at(name_of(from()));
  const Codes& expected = from() == to() ? edges : golden().edged.at({name_of(from()), name_of(to())});
  ASSERT_EQ(edges.size(), expected.size());
  Bytes out = converted(packed(from(), edges), edges.size());
  for (uint64_t i = 0; i < edges.size(); ++i) {
    ASSERT_EQ(hex(code_at(to(), out, i)), hex(expected[i]))
        << name_of(from()) << " " << hex(edges[i]) << " to " << name_of(to());
  }
}

TEST_P(ConvertGolden, AllInputs) {
  const std::vector<uint32_t>& expected = golden().blocks.at({name_of(from()), name_of(to())});
  const Bytes& in = inputs(from());
  const uint64_t elements = in.size() / dtype_row(from()).block_bytes * dtype_row(from()).block_elems;
  Bytes out = converted(in, elements);
  ASSERT_EQ(expected.size(), (elements + kBlock - 1) / kBlock);
  for (uint64_t b = 0; b < expected.size(); ++b) {
    const uint64_t begin = *bytes_of_elements(to(), b * kBlock);
    const uint64_t end = *bytes_of_elements(to(), std::min((b + 1) * kBlock, elements));
    EXPECT_EQ(hex(crc32(View(out).subspan(begin, end - begin))), hex(expected[b]))
        << "block " << b << " of " << kBlock << " inputs";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPair, ConvertGolden,
                         testing::Combine(testing::ValuesIn(kFloats), testing::ValuesIn(kFloats)),
                         [](const auto& pair) {
                           return name_of(std::get<0>(pair.param)) + "_to_" + name_of(std::get<1>(pair.param));
                         });

}  // namespace
}  // namespace shardwright
