/// Decoder chains on any bytes, cut anywhere: never more than the chunk's size comes out, and the cuts do not matter.
///
/// Input: one byte of chain length (0 to 3), one byte per step (row and parameter), four bytes of decoded size, one byte of
/// cut; the rest is the encoded chunk.
#include <algorithm>
#include <vector>

#include "fuzz_support.h"
#include "shardwright/codec/codec.h"

namespace {

using namespace shardwright;

constexpr uint64_t kMaxDecoded = 1 * MiB;

struct Decoded {
  bool ok = false;
  Bytes bytes;
};

std::vector<CodecSpec> chain_of(View header) {
  std::vector<CodecSpec> chain;
  for (std::byte step : header) {
    auto value = std::to_integer<unsigned>(step);
    const auto& row = codec_table()[value % 16 % codec_table().size()];
    chain.push_back({std::string(row.name), value / 16});
  }
  return chain;
}

/// Pushes `in` in pieces of `cut` bytes (0: at once).
Decoded decode(const std::vector<CodecSpec>& chain, uint64_t decoded_bytes, View in, size_t cut) {
  Decoded result;
  auto decoder = make_decoder(chain, decoded_bytes);
  if (!decoder.ok()) return result;
  auto emit = [&](View out) -> Status {
    result.bytes.insert(result.bytes.end(), out.begin(), out.end());
    FUZZ_CLAIM(result.bytes.size() <= decoded_bytes);
    return {};
  };
  const size_t step = cut == 0 ? std::max<size_t>(in.size(), 1) : cut;
  size_t at = 0;
  do {
    const size_t length = std::min(step, in.size() - at);
    const bool last = at + length == in.size();
    if (!(*decoder)->push(in.subspan(at, length), last, emit).ok()) return result;
    at += length;
  } while (at < in.size());
  FUZZ_CLAIM(result.bytes.size() == decoded_bytes);
  result.ok = true;
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  View in = fuzz_view(data, size);
  if (in.empty()) return 0;
  const size_t steps = std::to_integer<size_t>(in[0]) % 4;
  if (in.size() < 1 + steps + 5) return 0;
  auto chain = chain_of(in.subspan(1, steps));
  const uint64_t decoded_bytes = load_le<uint32_t>(in.subspan(1 + steps)) % (kMaxDecoded + 1);
  const size_t cut = std::to_integer<size_t>(in[steps + 5]);
  in = in.subspan(steps + 6);
  auto whole = decode(chain, decoded_bytes, in, 0);
  auto parts = decode(chain, decoded_bytes, in, cut);
  FUZZ_CLAIM(whole.ok == parts.ok);
  if (whole.ok) FUZZ_CLAIM(whole.bytes == parts.bytes);
  return 0;
}
