#include "shardwright/format/hdf5_global_heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardwright {
namespace {

void append_object(Bytes& heap, uint16_t index, uint64_t length, size_t stored) {
  append_le<uint16_t>(heap, index);
  append_le<uint16_t>(heap, 1);
  append_le<uint32_t>(heap, 0);
  append_le<uint64_t>(heap, length);
  heap.resize(heap.size() + stored);
}

Bytes header(uint64_t size) {
  Bytes out = bytes_of(std::string_view("GCOL\1\0\0\0", 8));
  append_le<uint64_t>(out, size);
  return out;
}

TEST(Hdf5GlobalHeap, ObjectsLieAtMultiplesOfEight) {
  Bytes heap = header(16 + 16 + 8 + 16 + 16 + 16);
  append_object(heap, 1, 5, 8);
  append_object(heap, 2, 16, 16);
  append_object(heap, 0, 0, 0);
  ASSERT_EQ(*parse_heap_header(heap), heap.size());
  auto objects = *parse_heap_objects(heap);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].offset, 32u);
  EXPECT_EQ(objects[0].length, 5u);
  EXPECT_EQ(objects[1].index, 2u);
  EXPECT_EQ(objects[1].offset, 56u);
}

TEST(Hdf5GlobalHeap, EndsWhereItEnds) {
  Bytes heap = header(16 + 16 + 5);
  append_object(heap, 1, 5, 5);
  EXPECT_EQ(parse_heap_objects(heap)->size(), 1u);
  heap.resize(heap.size() + 15);  // too little for another header
  EXPECT_EQ(parse_heap_objects(heap)->size(), 1u);
}

TEST(Hdf5GlobalHeap, SizesThatLie) {
  for (uint64_t length : {uint64_t{9}, kUnknown, kUnknown - 15}) {
    Bytes heap = header(40);
    append_object(heap, 1, length, 8);
    EXPECT_EQ(parse_heap_objects(heap).error().code, Code::kCorrupt) << length;
  }
  EXPECT_EQ(parse_heap_header(header(15)).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace shardwright
