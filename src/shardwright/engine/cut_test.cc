#include "shardwright/engine/cut.h"

#include <gtest/gtest.h>

#include <random>

namespace shardwright {
namespace {

TEST(Cut, PartsAreContiguousAndTogetherTheWhole) {
  std::random_device entropy;
  auto seed = entropy();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> extents(random() % 5);
    uint64_t total = 1;
    for (auto& extent : extents) total *= static_cast<uint64_t>(extent = static_cast<int64_t>(random() % 9));
    uint64_t block = std::vector<uint64_t>{1, 1, 2, 4}[random() % 4];
    if (total % block != 0) block = 1;
    uint64_t most = 1 + random() % 40, next = 0;
    Cut cut = cut_slabs(extents, most, block, 1 + random() % 3);
    for (uint64_t part = 0; part < cut.parts(); ++part) {
      Range range = cut.range(part);
      ASSERT_EQ(range.first, next);
      ASSERT_EQ(range.first % block, 0u);
      ASSERT_LE(range.count, cut.largest());
      if (block == 1) {
        ASSERT_LE(range.count, most);
      }
      next += range.count;
    }
    ASSERT_EQ(next, total);
  }
}

TEST(Cut, TakesTheCoarsestDimensionThatFits) {
  std::vector<int64_t> extents{6, 4, 5};
  EXPECT_EQ(cut_slabs(extents, 1000, 1).parts(), 1u);
  EXPECT_EQ(cut_slabs(extents, 40, 1).range(1).first, 40u);  // two rows of 20
  EXPECT_EQ(cut_slabs(extents, 10, 1).largest(), 10u);       // half a row
  EXPECT_EQ(cut_slabs(extents, 3, 1).inner, 1u);             // inside the last dimension
}

TEST(Cut, SlabsEndWhereRowsOfChunksEnd) {
  std::vector<int64_t> extents{100, 10};
  EXPECT_EQ(cut_slabs(extents, 250, 1, 8).step, 24u);
  EXPECT_EQ(cut_slabs(extents, 70, 1, 8).step, 7u);  // a row of chunks does not fit: as large as allowed
}

}  // namespace
}  // namespace shardwright
