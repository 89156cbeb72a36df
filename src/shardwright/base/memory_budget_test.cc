#include "shardwright/base/memory_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

namespace shardwright {
namespace {

using namespace std::chrono_literals;

/// Sanitizers keep memory of their own for ours.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kResidentIsOurs = false;
#elif defined(__has_feature)
constexpr bool kResidentIsOurs = !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer);
#else
constexpr bool kResidentIsOurs = true;
#endif

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::sleep_for(1ms);
}

TEST(Slab, LargeOnesAreAlignedToHugePages) {
  for (uint64_t bytes : {MiB, 2 * MiB, 8 * MiB + 5, 3 * MiB - 1}) {
    Slab slab = Slab::allocate(bytes);
    EXPECT_EQ(slab.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slab.data()) % (2 * MiB), 0u);
    std::memset(slab.data(), 7, bytes);
  }
  Slab small = Slab::allocate(100), moved = std::move(small);
  std::memset(moved.data(), 7, 100);
  EXPECT_EQ(moved.span().size(), 100u);
  EXPECT_EQ(small.size(), 0u);
  small = std::move(moved);
  EXPECT_EQ(small.size(), 100u);
  EXPECT_EQ(Slab::allocate(0).size(), 0u);
}

/// More than there is: nothing else is unmapped in its place (this program, to begin with).
TEST(Slab, WhatCannotBeHadHarmsNothing) {
  try {
    EXPECT_EQ(Slab::allocate(uint64_t{96} << 40).size(), uint64_t{96} << 40);  // where the system promises anything
  } catch (const std::bad_alloc&) {
  }
  EXPECT_THROW(Slab::allocate(~uint64_t{0} - MiB), std::bad_alloc);
}

TEST(Slab, GivesMemoryBack) {
  if (!kResidentIsOurs) GTEST_SKIP() << "the sanitizer holds memory of its own";
  const uint64_t before = resident_anonymous_bytes();
  ASSERT_GT(before, 0u);
  {
    Slab slab = Slab::allocate(64 * MiB);
    std::memset(slab.data(), 1, slab.size());
    EXPECT_GE(resident_anonymous_bytes(), before + 60 * MiB);
  }
  EXPECT_LE(resident_anonymous_bytes(), before + 8 * MiB);
}

TEST(MemoryBudget, GrantsWhatIsAskedFor) {
  MemoryBudget budget(10 * MiB);
  EXPECT_EQ(budget.peak(), 0u);
  {
    auto a = budget.acquire(4 * MiB, {});
    auto b = budget.acquire(6 * MiB, {});
    EXPECT_EQ(a.bytes(), 4 * MiB);
    EXPECT_EQ(b.span().size(), 6 * MiB);
    std::memset(b.span().data(), 1, b.span().size());
    EXPECT_EQ(budget.peak(), 10 * MiB);
  }
  auto whole = budget.acquire(10 * MiB, {});  // what was kept makes room
  EXPECT_EQ(whole.bytes(), 10 * MiB);
  EXPECT_EQ(budget.peak(), 10 * MiB);
}

TEST(MemoryBudget, ReusesSlabsOfAboutThatSize) {
  MemoryBudget budget(64 * MiB);
  std::byte* first = nullptr;
  {
    auto grant = budget.acquire(8 * MiB, {});
    first = grant.span().data();
  }
  {
    auto grant = budget.acquire(7 * MiB, {});
    EXPECT_EQ(grant.span().data(), first);
    EXPECT_EQ(grant.span().size(), 7 * MiB);
    EXPECT_EQ(budget.peak(), 8 * MiB);
    auto small = budget.acquire(1 * MiB, {});
    EXPECT_EQ(budget.peak(), 9 * MiB);
  }
  // The 8 MiB slab is much too large for this; both are kept, and counted.
  auto grant = budget.acquire(2 * MiB, {});
  EXPECT_NE(grant.span().data(), first);
  EXPECT_EQ(budget.peak(), 11 * MiB);
}

TEST(MemoryBudget, KeptSlabsNeverExceedTheLimit) {
  auto seed = std::random_device()();
  std::mt19937 random(seed);
  const uint64_t limit = 32 * MiB;
  MemoryBudget budget(limit);
  const uint64_t before = resident_anonymous_bytes();
  std::vector<MemoryBudget::Grant> held;
  uint64_t held_bytes = 0;  // with the slack a reused slab may have
  for (int i = 0; i < 400; ++i) {
    uint64_t bytes = 1 + random() % (12 * MiB);
    while (held_bytes + bytes + bytes / 4 > limit) {
      size_t victim = random() % held.size();
      held_bytes -= held[victim].bytes() + held[victim].bytes() / 4;
      std::swap(held[victim], held.back());
      held.pop_back();
    }
    held.push_back(budget.acquire(bytes, {}));
    held_bytes += bytes + bytes / 4;
    std::memset(held.back().span().data(), i, bytes);
    ASSERT_LE(budget.peak(), limit) << "seed " << seed;
    if (kResidentIsOurs) {
      ASSERT_LE(resident_anonymous_bytes(), before + limit + 8 * MiB) << "seed " << seed;
    }
  }
}

TEST(MemoryBudget, ALargeRequestIsNotOvertaken) {
  MemoryBudget budget(10);
  auto held = budget.acquire(6, {});
  std::atomic<bool> large_asks = false, large_has = false, small_has = false;
  std::atomic<bool> large_was_first = false, release_large = false;
  std::jthread large([&] {
    large_asks = true;
    auto grant = budget.acquire(8, {});
    large_was_first = !small_has;
    large_has = true;
    wait_for(release_large);
  });
  wait_for(large_asks);
  std::this_thread::sleep_for(100ms);
  std::jthread small([&] {
    auto grant = budget.acquire(3, {});  // there is room for 4, but not its turn
    small_has = true;
  });
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(large_has);
  EXPECT_FALSE(small_has);
  held = {};
  wait_for(large_has);
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(small_has);  // its turn, but no room
  release_large = true;
  wait_for(small_has);
  EXPECT_TRUE(large_was_first);
}

TEST(MemoryBudget, StopWakesAWaiterAndLetsTheNextOneIn) {
  MemoryBudget budget(10);
  auto held = budget.acquire(6, {});
  std::stop_source stop;
  std::atomic<bool> asks = false, stopped = false, next_has = false;
  std::jthread waiter([&] {
    asks = true;
    stopped = budget.acquire(8, stop.get_token()).bytes() == 0;
  });
  wait_for(asks);
  std::this_thread::sleep_for(100ms);
  std::jthread next([&] { next_has = budget.acquire(4, {}).bytes() == 4; });
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(next_has);
  stop.request_stop();
  waiter.join();
  EXPECT_TRUE(stopped);
  next.join();
  EXPECT_TRUE(next_has);
  EXPECT_EQ(budget.acquire(1, stop.get_token()).bytes(), 0u);  // stopped before it asked
  EXPECT_EQ(budget.acquire(4, {}).bytes(), 4u);
}

/// Workers that each ask once, in plan order, and then append in plan order: with two requests per task, or in any order, this stops
/// for ever (found by experiment), as granted it never does.
TEST(MemoryBudget, OneRequestPerTaskInPlanOrderNeverHangs) {
  auto seed = std::random_device()();
  for (unsigned round = 0; round < 20; ++round) {
    std::mt19937 random(seed + round);
    const int tasks = 200;
    std::vector<uint64_t> need(tasks);
    for (auto& bytes : need) bytes = 1 + random() % 8;
    MemoryBudget budget(8);
    std::mutex plan_order, append_order;
    std::condition_variable appended;
    int next_task = 0, next_append = 0;
    auto work = [&](unsigned worker) {
      std::mt19937 pause(seed + 100 * round + worker);
      for (;;) {
        std::unique_lock choosing(plan_order);
        if (next_task == tasks) return;
        int task = next_task++;
        auto grant = budget.acquire(need[static_cast<size_t>(task)], {});
        choosing.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(pause() % 100));
        std::unique_lock appending(append_order);
        ASSERT_TRUE(appended.wait_for(appending, 60s, [&] { return next_append == task; })) << "seed " << seed;
        ++next_append;
        appended.notify_all();
      }
    };
    std::vector<std::jthread> workers;
    for (unsigned worker = 0; worker < 4; ++worker) workers.emplace_back(work, worker);
    workers.clear();
    ASSERT_EQ(next_append, tasks);
    ASSERT_LE(budget.peak(), 8u);
  }
}

}  // namespace
}  // namespace shardwright
