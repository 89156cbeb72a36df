// zarr's transpose: the chunk with its dimensions in another order. Encoded dimension i is decoded dimension order[i].
#include <numeric>

#include "shardwright/codec/whole_chunk.h"

namespace shardwright::detail {
namespace {

constexpr size_t kOutputBytes = 64 * KiB;

/// Walks the output in C order; steps[d]: elements in the input between neighbours of output dimension d.
class Transpose : public WholeChunk {
 public:
  Transpose(uint64_t element_bytes, std::vector<uint64_t> extents, std::vector<uint64_t> steps, uint64_t chunk_bytes)
      : WholeChunk("transpose", chunk_bytes, kOutputBytes + element_bytes),
        element_bytes_(element_bytes),
        extents_(std::move(extents)),
        steps_(std::move(steps)),
        chunk_bytes_(chunk_bytes) {}

 private:
  Status turn(View whole, const std::function<Status(View)>& emit) override {
    if (whole.size() != chunk_bytes_) return corrupt("fewer bytes than the chunk has");
    if (whole.empty()) return {};
    Bytes out;
    out.reserve(kOutputBytes + element_bytes_);
    std::vector<uint64_t> index(extents_.size());
    uint64_t at = 0;
    for (uint64_t left = chunk_bytes_ / element_bytes_; left > 0; --left) {
      auto from = whole.begin() + static_cast<ptrdiff_t>(at * element_bytes_);
      out.insert(out.end(), from, from + static_cast<ptrdiff_t>(element_bytes_));
      if (out.size() >= kOutputBytes) {
        SHARDWRIGHT_TRY(emit(out));
        out.clear();
      }
      for (size_t d = extents_.size(); d-- > 0;) {
        at += steps_[d];
        if (++index[d] < extents_[d]) break;
        at -= steps_[d] * extents_[d];
        index[d] = 0;
      }
    }
    return out.empty() ? Status() : emit(out);
  }

  const uint64_t element_bytes_;
  const std::vector<uint64_t> extents_, steps_;
  const uint64_t chunk_bytes_;
};

std::vector<uint64_t> strides_of(std::span<const uint64_t> extents) {
  std::vector<uint64_t> strides(extents.size(), 1);
  for (size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
  return strides;
}

/// values: the decoded chunk's extents, then the order.
CodecResult make(const CodecSpec& spec, uint64_t chunk_bytes, bool decode) {
  size_t rank = spec.values.size() / 2;
  uint64_t bytes = spec.parameter;
  bool good = spec.values.size() % 2 == 0 && spec.parameter > 0;
  std::vector<bool> seen(rank);
  for (size_t d = 0; d < rank && good; ++d) {
    uint64_t source = spec.values[rank + d];
    good = source < rank && !seen[source];
    if (good) seen[source] = true;
    bytes = checked_mul(bytes, spec.values[d]).value_or(kUnknown);
  }
  if (!good || bytes == kUnknown || bytes != chunk_bytes)
    return fail(Code::kCorrupt, "transpose does not fit the chunk that it is to turn");
  std::span<const uint64_t> extents(spec.values.data(), rank);
  std::vector<uint64_t> turned(rank), steps(rank);
  for (size_t d = 0; d < rank; ++d) turned[d] = extents[spec.values[rank + d]];
  auto plain = strides_of(extents), inner = strides_of(turned);
  for (size_t d = 0; d < rank; ++d) {
    if (decode)
      steps[spec.values[rank + d]] = inner[d];
    else
      steps[d] = plain[spec.values[rank + d]];
  }
  auto walked = decode ? std::vector<uint64_t>(extents.begin(), extents.end()) : turned;
  return std::make_unique<Transpose>(spec.parameter, std::move(walked), std::move(steps), chunk_bytes);
}

}  // namespace

CodecResult transpose_decoder(const CodecSpec& spec, uint64_t chunk_bytes) { return make(spec, chunk_bytes, true); }
CodecResult transpose_encoder(const CodecSpec& spec, uint64_t chunk_bytes) { return make(spec, chunk_bytes, false); }
uint64_t transpose_bound(const CodecSpec&, uint64_t chunk_bytes) { return chunk_bytes; }

}  // namespace shardwright::detail
