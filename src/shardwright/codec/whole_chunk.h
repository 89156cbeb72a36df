/// For codecs that need all of a chunk before they can say anything of it.
#pragma once

#include <algorithm>

#include "shardwright/codec/codec_table.h"

namespace shardwright::detail {

/// Gathers the input, at most `most` bytes, and turns it into output in one go.
class WholeChunk : public Codec {
 public:
  /// most: input longer than this is kCorrupt; output_bytes: what turn() holds beside it.
  WholeChunk(const char* name, uint64_t most, uint64_t output_bytes)
      : name_(name), most_(most), output_bytes_(output_bytes) {}
  uint64_t window_bytes() const override { return checked_add(most_, output_bytes_).value_or(kUnknown); }

  Status push(View in, bool last, const std::function<Status(View)>& emit) override {
    if (in.size() > most_ - held_.size())
      return fail(Code::kCorrupt, std::string(name_) + ": more bytes than this chunk can have")
          .with_expected("at most " + std::to_string(most_) + " bytes");
    if (held_.capacity() < held_.size() + in.size())
      held_.reserve(last ? held_.size() + in.size() : std::min<uint64_t>(most_, 2 * held_.size() + in.size()));
    held_.insert(held_.end(), in.begin(), in.end());
    return last ? turn(held_, emit) : Status();
  }

 protected:
  virtual Status turn(View whole, const std::function<Status(View)>& emit) = 0;
  Error corrupt(const char* what) const { return fail(Code::kCorrupt, std::string(name_) + ": " + what); }

 private:
  const char* name_;
  const uint64_t most_, output_bytes_;
  Bytes held_;
};

}  // namespace shardwright::detail
