// for_each_run() and copy_strided() against element-by-element oracles, on random layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "shardwright/base/bytes.h"
#include "shardwright/tensor/box.h"

namespace shardwright {
namespace {

using Index = std::vector<int64_t>;
using Random = std::mt19937;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Box random_box(Random& random, size_t rank, int64_t largest) {
  Box box;
  for (size_t d = 0; d < rank; ++d) {
    box.start.push_back(pick(random, 0, 4));
    box.extent.push_back(pick(random, 0, 9) == 0 ? 1 : pick(random, 1, largest));
  }
  return box;
}

Box around(Random& random, const Box& part) {
  Box box = part;
  for (size_t d = 0; d < part.rank(); ++d) {
    if (pick(random, 0, 2) != 0) continue;
    int64_t before = pick(random, 0, 2);
    box.start[d] -= before;
    box.extent[d] += before + pick(random, 0, 2);
  }
  return box;
}

// Every element its own place: C order over some permutation of the dimensions, with gaps and some of them backwards.
Strided random_layout(Random& random, const Box& part) {
  Strided layout{around(random, part), {}};
  const size_t rank = part.rank();
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  if (pick(random, 0, 1) == 0) std::shuffle(order.begin(), order.end(), random);
  const bool plain = pick(random, 0, 2) == 0;
  layout.strides.resize(rank);
  int64_t step = plain ? 1 : pick(random, 1, 2);
  for (size_t i = rank; i-- > 0;) {
    size_t d = order[i];
    layout.strides[d] = !plain && pick(random, 0, 3) == 0 ? -step : step;
    step *= layout.box.extent[d];
    if (!plain && pick(random, 0, 3) == 0) step += pick(random, 1, 3);
  }
  return layout;
}

void repeat_some_dimensions(Random& random, Strided& layout) {
  for (int64_t& stride : layout.strides) {
    if (pick(random, 0, 5) == 0) stride = 0;
  }
}

// Lowest and highest offset of any element of the array.
std::pair<int64_t, int64_t> span_of(const Strided& layout) {
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < layout.strides.size(); ++d) {
    int64_t reach = layout.strides[d] * (layout.box.extent[d] - 1);
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

std::string describe(const Box& part, const Strided& a, const Strided& b) {
  auto strides = [](const Strided& s) {
    std::string out;
    for (int64_t stride : s.strides) out += " " + std::to_string(stride);
    return s.box.text() + " strides" + out;
  };
  return "part " + part.text() + " a " + strides(a) + " b " + strides(b);
}

template <class Visit>
void for_each_index(const Box& box, Visit visit) {
  if (box.empty()) return;
  Index index = box.start;
  for (uint64_t i = 0; i < box.elements(); ++i) {
    visit(index);
    for (size_t d = box.rank(); d-- > 0 && ++index[d] == box.start[d] + box.extent[d];) index[d] = box.start[d];
  }
}

struct Triple {
  int64_t a, b, elements;
  bool operator==(const Triple&) const = default;
};
void PrintTo(const Triple& run, std::ostream* out) {
  *out << "{" << run.a << "," << run.b << "," << run.elements << "}";
}

std::vector<Triple> naive_runs(const Box& part, const Strided& a, const Strided& b) {
  std::vector<Triple> runs;
  for_each_index(part, [&](const Index& index) {
    int64_t at_a = a.offset_of(index), at_b = b.offset_of(index);
    if (!runs.empty() && runs.back().a + runs.back().elements == at_a && runs.back().b + runs.back().elements == at_b) {
      ++runs.back().elements;
    } else {
      runs.push_back({at_a, at_b, 1});
    }
  });
  return runs;
}

std::vector<Triple> runs_of(const Box& part, const Strided& a, const Strided& b) {
  std::vector<Triple> runs;
  for_each_run(part, a, b,
               [&](int64_t at_a, int64_t at_b, int64_t elements) { runs.push_back({at_a, at_b, elements}); });
  return runs;
}

TEST(ForEachRun, WholeCOrderBoxIsOneRun) {
  Box box = Box::whole(Index{3, 1, 4, 5});
  Strided layout{box, c_strides(box.extent)};
  EXPECT_EQ(runs_of(box, layout, layout), (std::vector<Triple>{{0, 0, 60}}));
}

TEST(ForEachRun, ScalarIsOneElement) { EXPECT_EQ(runs_of({}, {}, {}), (std::vector<Triple>{{0, 0, 1}})); }

TEST(ForEachRun, RowsOfASubBox) {
  Box whole = Box::whole(Index{4, 6}), part{{1, 2}, {2, 3}};
  Strided from{whole, c_strides(whole.extent)}, to{part, c_strides(part.extent)};
  EXPECT_EQ(runs_of(part, from, to), (std::vector<Triple>{{8, 0, 3}, {14, 3, 3}}));
}

// Offsets 0, 2, 3, 5: no two loops collapse, yet the end of the first row meets the beginning of the second.
TEST(ForEachRun, JoinsRunsThatMeetByChance) {
  Box box = Box::whole(Index{2, 2});
  Strided odd{box, {3, 2}};
  EXPECT_EQ(runs_of(box, odd, odd), (std::vector<Triple>{{0, 0, 1}, {2, 2, 2}, {5, 5, 1}}));
}

TEST(ForEachRun, MatchesNaiveOnRandomLayouts) {
  const uint32_t seed = 31337;
  Random random(seed);
  for (int round = 0; round < 4000; ++round) {
    Box part = random_box(random, static_cast<size_t>(pick(random, 0, 5)), 5);
    Strided a = random_layout(random, part), b = random_layout(random, part);
    if (round % 3 == 0) repeat_some_dimensions(random, a);
    if (round % 5 == 0) repeat_some_dimensions(random, b);
    if (round % 4 == 0) b = a;
    ASSERT_EQ(runs_of(part, a, b), naive_runs(part, a, b))
        << "seed " << seed << " round " << round << " " << describe(part, a, b);
  }
}

void check_copy(Random& random, const Box& part, const Strided& from, const Strided& to, size_t element_bytes) {
  auto [from_low, from_high] = span_of(from);
  auto [to_low, to_high] = span_of(to);
  // One byte of offset: places need no alignment.
  const size_t unit = element_bytes;
  Bytes source(1 + static_cast<size_t>(from_high - from_low + 1) * unit);
  Bytes target(1 + static_cast<size_t>(to_high - to_low + 1) * unit, std::byte{0xEE});
  for (std::byte& b : source) b = static_cast<std::byte>(random());
  Bytes expected = target;
  const std::byte* source_first = source.data() + 1 + static_cast<size_t>(-from_low) * unit;
  std::byte* expected_first = expected.data() + 1 + static_cast<size_t>(-to_low) * unit;
  for_each_index(part, [&](const Index& index) {
    std::memcpy(expected_first + to.offset_of(index) * static_cast<int64_t>(unit),
                source_first + from.offset_of(index) * static_cast<int64_t>(unit), unit);
  });
  copy_strided(part, from, source_first, to, target.data() + 1 + static_cast<size_t>(-to_low) * unit, unit);
  ASSERT_TRUE(target == expected) << describe(part, from, to) << " element_bytes " << unit;
}

TEST(CopyStrided, MatchesNaiveOnRandomLayouts) {
  const uint32_t seed = 271828;
  Random random(seed);
  for (int round = 0; round < 6000; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    Box part = random_box(random, static_cast<size_t>(pick(random, 0, 5)), 5);
    Strided from = random_layout(random, part), to = random_layout(random, part);
    if (round % 4 == 0) repeat_some_dimensions(random, from);
    check_copy(random, part, from, to, size_t{1} << (round % 5));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Larger than a tile and no multiple of it.
TEST(CopyStrided, TransposesAcrossTileEdges) {
  Random random(99);
  for (size_t element_bytes : {1, 2, 4, 8, 16}) {
    for (const Index& shape : {Index{130, 67}, Index{64, 64}, Index{65, 200}, Index{1, 300}, Index{300, 2}}) {
      Box box = Box::whole(shape);
      Strided rows{box, c_strides(shape)}, columns{box, {1, shape[0]}}, backwards{box, {-1, -shape[0]}};
      check_copy(random, box, rows, columns, element_bytes);
      check_copy(random, box, columns, rows, element_bytes);
      check_copy(random, box, backwards, rows, element_bytes);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CopyStrided, TransposesShortInnerRuns) {
  Random random(7);
  for (size_t element_bytes : {1, 2, 4, 8, 16}) {
    for (int64_t inner : {2, 3, 4, 8, 16}) {
      Index shape{70, 3, 66, inner};
      Box box = Box::whole(shape);
      Strided from{box, c_strides(shape)}, to{box, {inner, 66 * 70 * inner, 70 * inner, 1}};
      check_copy(random, box, from, to, element_bytes);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CopyStrided, EmptyPartTouchesNothing) {
  Box part{{0, 0}, {0, 3}};
  Strided layout{part, {3, 1}};
  copy_strided(part, layout, nullptr, layout, nullptr, 4);
}

}  // namespace
}  // namespace shardwright
