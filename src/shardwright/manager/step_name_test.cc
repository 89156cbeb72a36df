#include "shardwright/manager/step_name.h"

#include <gtest/gtest.h>

#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

TEST(StepName, AsOrbaxWritesThem) {
  EXPECT_EQ(StepNames{}.name_of(100), "100");
  EXPECT_EQ((StepNames{"ckpt", 6}.name_of(5)), "ckpt_000005");
  EXPECT_EQ((StepNames{"", 3}.name_of(12345)), "12345");
}

TEST(StepName, WhatIsAStep) {
  StepNames plain, padded{"", 3}, named{"ckpt", 0};
  EXPECT_EQ(plain.step_of("0"), 0u);
  EXPECT_EQ(plain.step_of("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(padded.step_of("007"), 7u);
  EXPECT_EQ(padded.step_of("1234"), 1234u);
  EXPECT_EQ(named.step_of("ckpt_12"), 12u);
}

TEST(StepName, WhatIsNone) {
  StepNames plain, padded{"", 3}, named{"ckpt", 0};
  for (const char* name :
       {"", "007", "-1", "+1", "1 ", " 1", "1.orbax-checkpoint-tmp", "ckpt_1", ".5.shardwright-1-0123456789abcdef",
        "18446744073709551616", "1e3", "0x10", ".branches", ".new.5"})
    EXPECT_FALSE(plain.step_of(name)) << name;
  for (const char* name : {"7", "07", "01234"}) EXPECT_FALSE(padded.step_of(name)) << name;
  for (const char* name : {"12", "ckpt12", "ckpt_", "ckpt_012", "other_12"}) EXPECT_FALSE(named.step_of(name)) << name;
}

TEST(StepName, EveryNameLeadsBack) {
  for (const StepNames& names : {StepNames{}, StepNames{"a_b", 0}, StepNames{"", 6}, StepNames{"run", 20}})
    for (uint64_t step : {uint64_t{0}, uint64_t{9}, uint64_t{10}, uint64_t{1000000}, ~uint64_t{0}})
      EXPECT_EQ(names.step_of(names.name_of(step)), step);
}

TEST(StepName, PrefixesThatWouldLeaveTheDirectory) {
  for (const char* prefix : {"..", "a/b", ".hidden", "/", "a\\b"})
    EXPECT_CODE((StepNames{prefix, 0}.check()), Code::kInvalidArgument);
  EXPECT_CODE((StepNames{"", 21}.check()), Code::kInvalidArgument);
  EXPECT_OK((StepNames{"ckpt", 8}.check()));
}

}  // namespace
}  // namespace shardwright
