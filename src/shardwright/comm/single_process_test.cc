#include <gtest/gtest.h>

#include "shardwright/comm/comm.h"

namespace shardwright {
namespace {

const Deadline kPast = Deadline::min();

TEST(SingleProcess, IsTheOnlyRank) {
  auto comm = single_process();
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
  auto twin = comm->clone();
  ASSERT_TRUE(twin.ok());
  EXPECT_EQ((*twin)->size(), 1);
}

TEST(SingleProcess, GathersItsOwnBytesWithoutWaiting) {
  auto comm = single_process();
  auto all = comm->all_gather(view_of("mine"), kPast);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ(text_of((*all)[0]), "mine");
  EXPECT_TRUE(comm->all_gather({}, kPast)->at(0).empty());
}

TEST(SingleProcess, ExchangesWithItself) {
  auto comm = single_process();
  Bytes from = bytes_of("abcd"), to(4);
  Comm::Part send{0, from}, receive{0, to};
  ASSERT_TRUE(comm->exchange(std::span(&send, 1), std::span(&receive, 1), kPast).ok());
  EXPECT_EQ(to, from);
  ASSERT_TRUE(comm->exchange({}, {}, kPast).ok());
}

TEST(SingleProcess, RefusesOtherRanksSizesAndSecondParts) {
  auto comm = single_process();
  Bytes four(4), five(5);
  Comm::Part to_other{1, four}, mine{0, four}, longer{0, five};
  auto code = [&](std::span<const Comm::Part> send, std::span<const Comm::Part> receive) {
    Status status = comm->exchange(send, receive, kPast);
    return status.ok() ? Code::kInternal : status.error().code;
  };
  EXPECT_EQ(code(std::span(&to_other, 1), std::span(&mine, 1)), Code::kInvalidArgument);
  EXPECT_EQ(code(std::span(&mine, 1), std::span(&to_other, 1)), Code::kInvalidArgument);
  EXPECT_EQ(code(std::span(&mine, 1), std::span(&longer, 1)), Code::kInvalidArgument);
  EXPECT_EQ(code(std::span(&mine, 1), {}), Code::kInvalidArgument);
  std::vector<Comm::Part> twice{mine, mine};
  EXPECT_EQ(code(twice, twice), Code::kInvalidArgument);
}

}  // namespace
}  // namespace shardwright
