// zarr's int4, uint4, int2 and uint2 (of TensorStore): one value a byte, in its low bits; what the upper bits hold does not count, and is
// zero as TensorStore writes it.
#include <algorithm>
#include <array>

#include "shardwright/codec/codec_table.h"

namespace shardwright::detail {
namespace {

using Table = std::array<std::byte, 256>;

/// What each byte becomes.
Table table_of(SmallInt type, bool decode) {
  Table table{};
  const unsigned values = 1U << type.bits;
  for (unsigned byte = 0; byte < table.size(); ++byte) {
    unsigned value = byte % values;
    bool negative = decode && type.is_signed && value >= values / 2;
    table[byte] = static_cast<std::byte>(negative ? value - values : value);
  }
  return table;
}

class SmallIntCodec : public Codec {
 public:
  explicit SmallIntCodec(const Table& table) : table_(table) {}
  uint64_t window_bytes() const override { return sizeof *this; }

  Status push(View in, bool, const std::function<Status(View)>& emit) override {
    while (!in.empty()) {
      View part = in.first(std::min(in.size(), out_.size()));
      std::ranges::transform(part, out_.begin(), [&](std::byte byte) { return table_[std::to_integer<size_t>(byte)]; });
      SHARDWRIGHT_TRY(emit(View(out_).first(part.size())));
      in = in.subspan(part.size());
    }
    return {};
  }

 private:
  const Table table_;
  std::array<std::byte, 64 * KiB> out_{};
};

CodecResult make(const CodecSpec& spec, bool decode) {
  auto type = SmallInt::unpack(spec.parameter);
  if (type.bits < 1 || type.bits > 7)
    return fail(Code::kCorrupt, "integers of " + std::to_string(type.bits) + " bits, one a byte");
  return std::make_unique<SmallIntCodec>(table_of(type, decode));
}

}  // namespace

CodecResult small_int_decoder(const CodecSpec& spec, uint64_t) { return make(spec, true); }
CodecResult small_int_encoder(const CodecSpec& spec, uint64_t) { return make(spec, false); }
uint64_t small_int_bound(const CodecSpec&, uint64_t chunk_bytes) { return chunk_bytes; }

}  // namespace shardwright::detail
