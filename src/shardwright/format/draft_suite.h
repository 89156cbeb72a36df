/// For tests of drafts: writes what a draft says, without the engine, and checks the rules of format.h on the way.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shardwright/base/checksum.h"
#include "shardwright/format/format.h"

namespace shardwright::testing {

/// Files by key. values(tensor): logical bytes of a tensor of draft.target(), of which each of several pieces gets the first.
inline std::map<std::string, Bytes> materialise(Draft& draft, const std::function<Bytes(TensorId)>& values) {
  std::map<std::string, Bytes> files;
  std::vector<Receipt> all;
  for (ObjectId object = 0; object < draft.objects().size(); ++object) {
    const auto& info = draft.objects()[object];
    Bytes& file = files[info.key];
    file.resize(info.size);
    std::vector<Receipt> receipts;
    auto segments = draft.segments(object);
    uint64_t at = 0;
    for (const auto& segment : segments) {
      EXPECT_GE(segment.offset, at) << "segments out of order or overlapping";
      EXPECT_LE(segment.offset + segment.length, info.size);
      at = segment.offset + segment.length;
      if (segment.type == Segment::kLate) continue;
      Bytes bytes = segment.type == Segment::kPayload ? values(segment.tensor)
                                                      : Bytes(segment.literal.begin(), segment.literal.end());
      if (segment.type == Segment::kPayload && segment.piece != kWholeTensor) bytes.resize(segment.length);
      EXPECT_EQ(bytes.size(), segment.length);
      std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<ptrdiff_t>(segment.offset));
      Receipt receipt;
      receipt.tensor = segment.tensor;
      receipt.place = {Place::kExtent, -1, object, segment.offset, segment.length};
      receipt.crc32c = crc32c(bytes);
      receipt.crc32 = crc32(bytes);
      receipts.push_back(receipt);
    }
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].type != Segment::kLate) continue;
      auto late = draft.late(object, i, receipts);
      EXPECT_TRUE(late.ok() && late->size() == segments[i].length);
      if (late.ok()) std::copy(late->begin(), late->end(), file.begin() + static_cast<ptrdiff_t>(segments[i].offset));
    }
    all.insert(all.end(), receipts.begin(), receipts.end());
  }
  auto sealed = draft.seal(all);
  EXPECT_TRUE(sealed.ok());
  if (sealed.ok())
    for (auto& [key, bytes] : *sealed) files[key] = std::move(bytes);
  return files;
}

/// Bytes that differ from tensor to tensor.
inline Bytes pattern(TensorId tensor, uint64_t length) {
  Bytes out(length);
  for (uint64_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>(i * 31 + tensor * 7 + 1);
  return out;
}

}  // namespace shardwright::testing
