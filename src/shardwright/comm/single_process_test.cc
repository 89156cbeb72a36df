#include <gtest/gtest.h>

#include "shardwright/comm/comm_suite.h"

namespace shardwright::testing_support {
namespace {

TEST(SingleProcess, PassesEveryCheck) {
  auto comm = single_process();
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
  for (const auto& check : comm_suite()) EXPECT_EQ(check.run(*comm), "") << check.name;
}

TEST(SingleProcess, WaitsForNobody) {
  auto comm = single_process();
  EXPECT_TRUE(comm->all_gather({}, Deadline::min()).ok());
  EXPECT_TRUE(comm->exchange({}, {}, Deadline::min()).ok());
}

}  // namespace
}  // namespace shardwright::testing_support
