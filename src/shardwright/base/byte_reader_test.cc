#include "shardwright/base/byte_reader.h"

#include <gtest/gtest.h>

namespace shardwright {
namespace {

Bytes sample() {
  Bytes out;
  append_le<uint16_t>(out, 0x1234);
  append_sized(out, "text");
  append_le<uint64_t>(out, 2);
  append_le<uint32_t>(out, 7);
  append_le<uint32_t>(out, 8);
  return out;
}

TEST(ByteReader, ReadsWhatWasWritten) {
  Bytes bytes = sample();
  ByteReader in(bytes);
  EXPECT_EQ(in.number<uint16_t>(), 0x1234);
  EXPECT_EQ(in.text(), "text");
  ASSERT_EQ(in.count(sizeof(uint32_t)), 2u);
  EXPECT_EQ(in.number<uint32_t>(), 7u);
  EXPECT_EQ(in.number<uint32_t>(), 8u);
  EXPECT_FALSE(in.bad);
  EXPECT_EQ(in.number<uint8_t>(), 0);
  EXPECT_TRUE(in.bad);
}

TEST(ByteReader, WhateverIsCutOffIsBadAndEmpty) {
  Bytes whole = sample();
  for (size_t size = 0; size < whole.size(); ++size) {
    ByteReader in(View(whole).first(size));
    (void)in.number<uint16_t>();
    (void)in.text();
    size_t count = in.count(sizeof(uint32_t));
    EXPECT_LE(count * sizeof(uint32_t), size);
    for (size_t i = 0; i < 2; ++i) (void)in.number<uint32_t>();
    EXPECT_TRUE(in.bad) << size;
    EXPECT_EQ(in.text(), "");
  }
}

TEST(ByteReader, CountsNoMoreThanThereIs) {
  Bytes bytes;
  append_le<uint64_t>(bytes, ~0ull);
  append_le<uint64_t>(bytes, 0);
  EXPECT_EQ(ByteReader(bytes).count(1), 0u);
  EXPECT_EQ(ByteReader(bytes).text(), "");
}

}  // namespace
}  // namespace shardwright
