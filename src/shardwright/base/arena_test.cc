#include "shardwright/base/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace shardwright {
namespace {

void fill(const ArenaPart& part, int value) { std::ranges::fill(part.span(), static_cast<std::byte>(value)); }

bool holds(const ArenaPart& part, int value) {
  return std::ranges::all_of(part.span(), [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

TEST(Arena, PartsAreAlignedAndApart) {
  Arena arena;
  std::vector<ArenaPart> parts;
  std::vector<uint64_t> sizes = {1, 63, 64, 65, 5000, 0, 3 * MiB, 40 * MiB, 30 * MiB, 31 * MiB, 7};
  for (uint64_t size : sizes) parts.push_back(arena.allocate(size));
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].span().size(), sizes[i]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parts[i].span().data()) % 64, 0u);
    fill(parts[i], static_cast<int>(i + 1));
  }
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(holds(parts[i], static_cast<int>(i + 1))) << i;
}

TEST(Arena, APartGoesBackByItselfAndLeavesItsNeighboursAlone) {
  Arena arena;
  ArenaPart first = arena.allocate(10 * MiB + 100), second = arena.allocate(10 * MiB + 100),
            third = arena.allocate(10 * MiB + 100);
  fill(first, 1);
  fill(second, 2);
  fill(third, 3);
  uint64_t before = resident_anonymous_bytes();
  second = {};
  EXPECT_LE(resident_anonymous_bytes() + 9 * MiB, before);
  EXPECT_TRUE(holds(first, 1));
  EXPECT_TRUE(holds(third, 3));
}

TEST(Arena, PartsOutliveTheirArena) {
  ArenaPart kept;
  {
    Arena arena;
    kept = arena.allocate(100);
    fill(kept, 9);
  }
  EXPECT_TRUE(holds(kept, 9));
}

}  // namespace
}  // namespace shardwright
