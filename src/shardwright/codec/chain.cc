// Codecs in a row as one (codec.h).
#include <algorithm>
#include <utility>

#include "shardwright/codec/codec.h"

namespace shardwright {
namespace {

std::string bytes_text(uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

/// Counts one side of a chunk against the size it must have.
class ExactSize {
 public:
  ExactSize(uint64_t expected, Code code, const char* what) : expected_(expected), code_(code), what_(what) {}
  Status add(uint64_t bytes) {
    if (expected_ == kUnknown) return {};
    if (bytes > expected_ - seen_) return wrong("more");
    seen_ += bytes;
    return {};
  }
  Status finish() const {
    if (expected_ == kUnknown || seen_ == expected_) return {};
    return wrong("fewer").with_found(bytes_text(seen_));
  }

 private:
  Error wrong(const char* how) const {
    return fail(code_, std::string(what_) + " has " + how + " bytes than it must").with_expected(bytes_text(expected_));
  }
  uint64_t expected_, seen_ = 0;
  Code code_;
  const char* what_;
};

using Stages = std::vector<std::unique_ptr<Codec>>;

class Chain : public Codec {
 public:
  Chain(Stages stages, ExactSize in, ExactSize out) : stages_(std::move(stages)), in_(in), out_(out) {}

  uint64_t window_bytes() const override {
    uint64_t sum = 0;
    for (const auto& stage : stages_) sum = checked_add(sum, stage->window_bytes()).value_or(kUnknown);
    return sum;
  }

  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    SHARDWRIGHT_TRY(in_.add(in.size()));
    if (last) SHARDWRIGHT_TRY(in_.finish());
    SHARDWRIGHT_TRY(run(0, in, last, emit));
    return last ? out_.finish() : Status();
  }

  bool decode_into(MutableView whole) override { return !stages_.empty() && stages_.back()->decode_into(whole); }

 private:
  Status run(size_t stage, View in, bool last, const std::function<Status(View)>& emit) {
    if (stage == stages_.size()) {
      if (in.empty()) return {};
      SHARDWRIGHT_TRY(out_.add(in.size()));
      return emit(in);
    }
    // Whether a view is the last one is known only after its stage is done; so the end travels by itself.
    SHARDWRIGHT_TRY(stages_[stage]->push(in, last, [&](View out) { return run(stage + 1, out, false, emit); }));
    return last ? run(stage + 1, {}, true, emit) : Status();
  }

  Stages stages_;
  ExactSize in_, out_;
};

Result<const CodecRow*> find_row(const CodecSpec& spec) {
  for (const CodecRow& row : codec_table())
    if (row.name == spec.name) return &row;
  std::string known;
  for (const CodecRow& row : codec_table()) known += (known.empty() ? "" : ", ") + std::string(row.name);
  return fail(Code::kUnsupported, "stored with a codec that cannot be decoded")
      .with_found(spec.name)
      .with_expected(known)
      .with_hint("write it again without, with the program that made it (HDF5: `h5repack -f NONE in.h5 out.h5`)");
}

enum class Direction { kDecode, kEncode };

/// The steps front to back, as encoding applies them.
Result<Stages> make_stages(std::span<const CodecSpec> chain, uint64_t decoded_bytes, Direction direction) {
  Stages stages;
  uint64_t bytes = decoded_bytes;
  for (const CodecSpec& spec : chain) {
    SHARDWRIGHT_ASSIGN(const CodecRow* row, find_row(spec));
    SHARDWRIGHT_ASSIGN(auto stage, (direction == Direction::kDecode ? row->decoder : row->encoder)(spec, bytes));
    stages.push_back(std::move(stage));
    bytes = row->exact && bytes != kUnknown ? row->encoded_bound(spec, bytes) : kUnknown;
  }
  return stages;
}

}  // namespace

Result<std::unique_ptr<Codec>> make_decoder(std::span<const CodecSpec> chain, uint64_t decoded_bytes) {
  SHARDWRIGHT_ASSIGN(Stages stages, make_stages(chain, decoded_bytes, Direction::kDecode));
  std::reverse(stages.begin(), stages.end());
  return std::make_unique<Chain>(std::move(stages), ExactSize(kUnknown, Code::kInternal, ""),
                                 ExactSize(decoded_bytes, Code::kCorrupt, "decoded chunk"));
}

Result<std::unique_ptr<Codec>> make_encoder(std::span<const CodecSpec> chain, uint64_t decoded_bytes) {
  SHARDWRIGHT_ASSIGN(Stages stages, make_stages(chain, decoded_bytes, Direction::kEncode));
  return std::make_unique<Chain>(std::move(stages), ExactSize(decoded_bytes, Code::kInvalidArgument, "chunk to encode"),
                                 ExactSize(kUnknown, Code::kInternal, ""));
}

uint64_t encoded_bound(std::span<const CodecSpec> chain, uint64_t decoded_bytes) {
  uint64_t bytes = decoded_bytes;
  for (const CodecSpec& spec : chain) {
    auto row = find_row(spec);
    bytes = row.ok() && bytes != kUnknown ? (*row)->encoded_bound(spec, bytes) : kUnknown;
  }
  return bytes;
}

}  // namespace shardwright
