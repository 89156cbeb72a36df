#include "shardwright/tensor/box.h"

#include <gtest/gtest.h>

#include <random>

namespace shardwright {
namespace {

using Index = std::vector<int64_t>;

TEST(Box, WholeElementsText) {
  Box box = Box::whole(Index{2, 3});
  EXPECT_EQ(box.start, (Index{0, 0}));
  EXPECT_EQ(box.elements(), 6u);
  EXPECT_EQ(box.text(), "[0:2, 0:3]");
  EXPECT_EQ((Box{{3, 0}, {4, 1}}.text()), "[3:7, 0:1]");
}

TEST(Box, RankZeroIsOneElement) {
  Box scalar = Box::whole(Index{});
  EXPECT_EQ(scalar.elements(), 1u);
  EXPECT_FALSE(scalar.empty());
  EXPECT_EQ(scalar.text(), "[]");
  EXPECT_TRUE(scalar.contains(scalar));
  EXPECT_EQ(intersect(scalar, scalar), scalar);
}

TEST(Box, Contains) {
  Box outer{{1, 1}, {3, 3}};
  EXPECT_TRUE(outer.contains(outer));
  EXPECT_TRUE(outer.contains({{2, 1}, {2, 3}}));
  EXPECT_FALSE(outer.contains({{2, 1}, {3, 3}}));
  EXPECT_FALSE(outer.contains({{0, 1}, {2, 2}}));
  EXPECT_FALSE(outer.contains({{1}, {1}}));
}

TEST(Box, Intersect) {
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{2, 3}, {4, 4}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{4, 0}, {1, 4}}), std::nullopt);
  EXPECT_EQ(intersect({{0, 0}, {4, 0}}, {{0, 0}, {4, 4}}), std::nullopt);
}

TEST(CStrides, InnermostIsOne) {
  EXPECT_EQ(c_strides(Index{2, 3, 4}), (Index{12, 4, 1}));
  EXPECT_EQ(c_strides(Index{}), Index{});
  EXPECT_EQ(c_strides(Index{5}), Index{1});
}

TEST(CStrides, HugeEmptyShapeIsNoOverflow) {
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(c_strides(Index{0, huge, huge}).back(), 1);  // UBSan would object
}

TEST(StridedLayout, OffsetsAndCOrder) {
  Strided columns{{{10, 20}, {2, 3}}, {1, 2}};
  EXPECT_EQ(columns.offset_of(Index{11, 22}), 1 + 2 * 2);
  EXPECT_FALSE(columns.is_c_order());
  EXPECT_TRUE((Strided{{{10, 20}, {2, 3}}, {3, 1}}.is_c_order()));
  EXPECT_TRUE((Strided{{{0, 0, 0}, {2, 1, 3}}, {3, -7, 1}}.is_c_order()));
  EXPECT_FALSE((Strided{{{0, 0}, {2, 3}}, {4, 1}}.is_c_order()));
  EXPECT_TRUE((Strided{{{0, 0}, {0, 3}}, {9, 9}}.is_c_order()));
  EXPECT_TRUE((Strided{{{}, {}}, {}}.is_c_order()));
}

// The boxes in order must list exactly the elements first, first + 1, ... of the whole.
void expect_range(const Box& whole, uint64_t first, uint64_t count) {
  SCOPED_TRACE(whole.text() + " first " + std::to_string(first) + " count " + std::to_string(count));
  std::vector<Box> boxes = boxes_of_range(whole, first, count);
  EXPECT_LE(boxes.size(), 2 * whole.rank() + 1);
  Strided layout{whole, c_strides(whole.extent)};
  uint64_t expected = first;
  for (const Box& box : boxes) {
    ASSERT_TRUE(whole.contains(box)) << box.text();
    ASSERT_FALSE(box.empty());
    Index index = box.start;
    for (uint64_t i = 0; i < box.elements(); ++i) {
      ASSERT_EQ(layout.offset_of(index), static_cast<int64_t>(expected++)) << box.text();
      for (size_t d = box.rank(); d-- > 0 && ++index[d] == box.start[d] + box.extent[d];) index[d] = box.start[d];
    }
  }
  EXPECT_EQ(expected, first + count);
}

TEST(BoxesOfRange, KnownCuts) {
  Box whole = Box::whole(Index{4, 5});
  EXPECT_EQ(boxes_of_range(whole, 0, 20), std::vector<Box>{whole});
  EXPECT_EQ(boxes_of_range(whole, 3, 0), std::vector<Box>{});
  EXPECT_EQ(boxes_of_range(whole, 3, 14), (std::vector<Box>{{{0, 3}, {1, 2}}, {{1, 0}, {2, 5}}, {{3, 0}, {1, 2}}}));
  EXPECT_EQ(boxes_of_range(whole, 6, 2), (std::vector<Box>{{{1, 1}, {1, 2}}}));
  EXPECT_EQ(boxes_of_range(Box::whole(Index{}), 0, 1), std::vector<Box>{Box{}});
  EXPECT_EQ(boxes_of_range(Box::whole(Index{0, 3}), 0, 0), std::vector<Box>{});
  EXPECT_EQ(boxes_of_range({{7, 2}, {2, 2}}, 1, 2), (std::vector<Box>{{{7, 3}, {1, 1}}, {{8, 2}, {1, 1}}}));
}

TEST(BoxesOfRange, EveryRangeOfSmallShapes) {
  for (const Index& shape : {Index{6}, Index{3, 4}, Index{2, 1, 3}, Index{2, 3, 2, 2}, Index{1, 1, 1, 1, 2}}) {
    Box whole = Box::whole(shape);
    whole.start.assign(shape.size(), 5);
    for (uint64_t first = 0; first < whole.elements(); ++first) {
      for (uint64_t count = 0; first + count <= whole.elements(); ++count) expect_range(whole, first, count);
    }
  }
}

TEST(BoxesOfRange, RandomRangesMatchBruteForce) {
  const uint32_t seed = 20240607;
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    Box whole;
    for (size_t rank = random() % 6; rank > 0; --rank) {
      whole.start.push_back(random() % 9);
      whole.extent.push_back(1 + random() % 5);
    }
    uint64_t first = random() % whole.elements();
    expect_range(whole, first, random() % (whole.elements() - first + 1));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace shardwright
