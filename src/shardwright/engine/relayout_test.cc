#include "shardwright/engine/relayout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "shardwright/comm/processes_for_test.h"
#include "shardwright/engine/relayout_check_for_test.h"
#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

using ::testing::HasSubstr;

/// Rows or columns of a matrix over devices, so many to a rank.
std::vector<Shard> split(int64_t rows, int64_t columns, size_t dimension, int32_t devices, int32_t per_rank) {
  auto mesh = DeviceMesh::create({devices}, {"x"});
  TensorLayout layout;
  layout.dims.resize(2);
  layout.dims[dimension] = {"x"};
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < devices; ++i) ranks.push_back(i / per_rank);
  return shards_of(*mesh, *ShardGrid::create(*mesh, layout, std::vector<int64_t>{rows, columns}), ranks);
}

TEST(RelayoutPlan, RowsToColumnsMoveAllButTheDiagonal) {
  RelayoutTensor tensor{"t", 4, split(80, 80, 0, 8, 2), split(80, 80, 1, 8, 2)};
  auto plan = plan_relayout({&tensor, 1}, 4, GiB);
  ASSERT_OK(plan);
  uint64_t all = 80 * 80 * 4;
  EXPECT_EQ(plan->kept_bytes, all / 8);    // one block in eight lies on its device already
  EXPECT_EQ(plan->copied_bytes, all / 8);  // one on the other device of the rank
  EXPECT_EQ(plan->sent_bytes, all - all / 4);
  EXPECT_EQ(plan->rounds, 1u);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(plan->rank_sends[rank], plan->sent_bytes / 4);
}

TEST(RelayoutPlan, SameLayoutMovesNothing) {
  RelayoutTensor tensor{"t", 4, split(80, 80, 0, 8, 2), split(80, 80, 0, 8, 2)};
  auto plan = plan_relayout({&tensor, 1}, 4, GiB);
  ASSERT_OK(plan);
  EXPECT_EQ(plan->sent_bytes + plan->copied_bytes, 0u);
  EXPECT_EQ(plan->kept_bytes, 80u * 80 * 4);
  EXPECT_EQ(plan->rounds, 0u);
}

/// Ranks 0 to 3 hold all of it, ranks 4 to 7 want it: every holder sends one.
TEST(RelayoutPlan, ReplicasShareTheWork) {
  RelayoutTensor tensor{"t", 1, {}, {}};
  for (int32_t rank = 0; rank < 4; ++rank) tensor.from.push_back({Box{{0}, {1000}}, rank, rank});
  for (int32_t rank = 4; rank < 8; ++rank)
    for (int64_t device : {0, 1}) tensor.to.push_back({Box{{0}, {1000}}, rank, rank * 2 + device});
  auto plan = plan_relayout({&tensor, 1}, 8, GiB);
  ASSERT_OK(plan);
  EXPECT_THAT(plan->rank_sends, ::testing::ElementsAre(1000, 1000, 1000, 1000, 0, 0, 0, 0));
  EXPECT_EQ(plan->sent_bytes, 4000u);    // once to each rank,
  EXPECT_EQ(plan->copied_bytes, 4000u);  // whose second device gets it there
}

/// However much memory there is: a message of MPI has fewer than 2^31 bytes. Nothing is allocated for a plan.
TEST(RelayoutPlan, RoundsAreNoLargerThanMessagesMayBe) {
  RelayoutTensor tensor{"t", 8, {{Box{{0}, {1 << 30}}, 0, 0}}, {{Box{{0}, {1 << 30}}, 1, 1}}};
  auto plan = plan_relayout({&tensor, 1}, 2, 100 * GiB);
  ASSERT_OK(plan);
  std::map<uint32_t, uint64_t> rounds;
  for (const auto& shipment : plan->shipments) rounds[shipment.round] += shipment.bytes;
  EXPECT_EQ(plan->sent_bytes, 8 * GiB);
  for (auto [round, bytes] : rounds) EXPECT_LE(bytes, 2 * GiB - 1) << round;
}

TEST(RelayoutPlan, RefusesWhatCannotBe) {
  RelayoutTensor hole{"t", 4, {{Box{{0}, {4}}, 0, 0}}, {{Box{{2}, {4}}, 1, 1}}};
  EXPECT_CODE(plan_relayout({&hole, 1}, 2, GiB), Code::kInvalidArgument);
  hole.to[0].box = Box{{0}, {4}};
  EXPECT_OK(plan_relayout({&hole, 1}, 2, GiB));
  EXPECT_CODE(plan_relayout({&hole, 1}, 1, GiB), Code::kInvalidArgument);
  EXPECT_CODE(plan_relayout({&hole, 1}, 2, 1000), Code::kResourceExhausted);
  for (Box box : {Box{{0, 0}, {4, 4}}, Box{{0}, {4, 4}}, Box{{0}, {-4}}}) {
    auto other = hole;
    other.to[0].box = box;
    EXPECT_CODE(plan_relayout({&other, 1}, 2, GiB), Code::kInvalidArgument);
  }
  hole.element_bytes = 3;
  EXPECT_CODE(plan_relayout({&hole, 1}, 2, GiB), Code::kInvalidArgument);
}

TEST(RelayoutPlan, RandomOnesMoveWhatMustMoveInRoundsThatFit) {
  uint64_t seed = std::random_device()(), shipped = 0;
  for (int ranks : {2, 3, 5})
    for (uint64_t i = 0; i < 12; ++i) {
      RelayoutCase drawn(seed + i, ranks, /*large=*/true);
      EXPECT_EQ(drawn.check_plan(), "") << "seed " << seed + i << ", " << ranks << " ranks";
      shipped += drawn.rounds() > 1;
    }
  EXPECT_GT(shipped, 0u) << "too few of several rounds";
}

TEST(Relayout, RandomOnesAreRightInOneProcess) {
  uint64_t seed = std::random_device()();
  auto comm = single_process();
  EXPECT_EQ(check_relayouts(*comm, seed, 30), "");
}

TEST(Relayout, RandomOnesAreRightAcrossProcesses) {
  uint64_t seed = std::random_device()();
  for (int size : {2, 3}) {
    TemporaryDirectory directory;
    Processes ranks(size, [&](int rank) {
      auto comm = meet_in_directory(directory.path(), rank, size, deadline_in(std::chrono::seconds(30)));
      return comm.ok() ? check_relayouts(**comm, seed, 15) : comm.error().text();
    });
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(ranks.text(rank), "");
  }
}

TEST(Relayout, OneRanksFailureIsEveryones) {
  TemporaryDirectory directory;
  Processes ranks(3, [&](int rank) {
    auto comm = meet_in_directory(directory.path(), rank, 3, deadline_in(std::chrono::seconds(30)));
    if (!comm.ok()) return comm.error().text();
    RelayoutTensor tensor{"t", 4, split(60, 60, 0, 3, 1), split(60, 60, 1, 3, 1)};
    Bytes from(60 * 20 * 4), to(60 * 20 * 4);
    RelayoutCalls calls;
    // The others wait for what it does not send.
    calls.source = [&](uint32_t, uint32_t) -> Result<ShardMemory> {
      if (rank == 1) return fail(Code::kIo, "device is lost");
      return ShardMemory{from.data()};
    };
    calls.target = [&](uint32_t, uint32_t) { return Result<ShardMemory>(ShardMemory{to.data()}); };
    RelayoutOptions options;
    options.wait = std::chrono::seconds(5);
    auto done = relayout({&tensor, 1}, calls, options, **comm);
    return done.ok() ? "ok" : done.error().text();
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.text(rank), HasSubstr("device is lost"));
}

TEST(Relayout, RanksThatAskForDifferentThingsAreTold) {
  TemporaryDirectory directory;
  Processes ranks(2, [&](int rank) {
    auto comm = meet_in_directory(directory.path(), rank, 2, deadline_in(std::chrono::seconds(30)));
    if (!comm.ok()) return comm.error().text();
    RelayoutTensor tensor{"t", rank == 0 ? 4u : 8u, split(60, 60, 0, 2, 1), split(60, 60, 1, 2, 1)};
    auto done = relayout({&tensor, 1}, {}, {}, **comm);
    return done.ok() ? "ok" : done.error().text();
  });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(ranks.text(rank), HasSubstr("rank 1 asks for another relayout than rank 0"));
}

}  // namespace
}  // namespace shardwright::testing_support
