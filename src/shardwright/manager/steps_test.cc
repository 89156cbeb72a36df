#include "shardwright/manager/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "shardwright/manager/claim.h"
#include "shardwright/manager/run_for_test.h"

namespace shardwright {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

class Steps : public Run {};

TEST_F(Steps, AManifestThatDoesNotHoldIsNoStep) {
  ASSERT_OK(write(1, 1));
  ASSERT_OK(write(2, 2));
  fs::path data;
  for (const auto& entry : fs::directory_iterator(root + "/2/state/d")) data = entry.path();
  fs::resize_file(data, fs::file_size(data) - 1);
  EXPECT_THAT(complete(), ElementsAre(1));
  EXPECT_THAT(prove_step(root + "/2").text, HasSubstr("bytes, not"));
  fs::remove(data);
  EXPECT_THAT(prove_step(root + "/2").text, HasSubstr("is missing"));
  auto latest = latest_step(root, names);
  ASSERT_OK(latest);
  EXPECT_EQ((*latest)->facts.step, 1u);
}

TEST_F(Steps, PrefixAndPadding) {
  names = {"ckpt", 6};
  ASSERT_OK(write(5, 1));
  EXPECT_THAT(entries(), ElementsAre("ckpt_000005"));
  EXPECT_THAT(complete(), ElementsAre(5));
  auto any = list_steps(root, std::nullopt);
  ASSERT_OK(any);
  EXPECT_EQ(any->front().facts.step, 5u);
}

/// Other things that end in a number are not of the run, though they be steps: a copy, a step of another name, logs.
TEST_F(Steps, ARunHasOneKindOfName) {
  for (uint64_t step : {5, 6}) ASSERT_OK(write(step, 1));
  fs::copy(root + "/6", root + "/backup_7", fs::copy_options::recursive);
  fs::copy(root + "/6", root + "/006", fs::copy_options::recursive);
  for (const char* other : {"logs_9", "1_0", "8", "step_3"}) write_file(root + "/" + other + "/notes", "x");
  EXPECT_EQ(names_of_run(root)->name_of(5), "5");
  auto found = list_step_names(root, std::nullopt);
  ASSERT_OK(found);
  EXPECT_THAT(*found, ElementsAre(testing::Pair(5, "5"), testing::Pair(6, "6"), testing::Pair(8, "8")));
  ASSERT_OK(forget_steps(root, std::nullopt, {.last = 1}));
  ASSERT_OK(prune_steps(root, std::nullopt, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("006", "1_0", "6", "8", "backup_7", "logs_9", "step_3"));
  names = {"ckpt", 3};
  for (uint64_t step : {1, 2}) ASSERT_OK(write(step, 1));
  EXPECT_EQ(names_of_run(root)->name_of(5), "ckpt_005");
}

TEST_F(Steps, Forgetting) {
  for (uint64_t step = 1; step <= 5; ++step)
    ASSERT_OK(write(step, static_cast<float>(step), {}, static_cast<double>(step)));
  ASSERT_OK(pin_step(root, "2", true));
  EXPECT_CODE(pin_step(root, "77", true), Code::kNotFound);
  Retention rules{.last = 1, .best = {{"loss", 1, false}}};
  auto dry = forget_steps(root, names, rules, {.dry_run = true});
  ASSERT_OK(dry);
  EXPECT_THAT(complete(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_FALSE(dry->verdicts[2].keep());
  ASSERT_OK(forget_steps(root, names, rules));
  EXPECT_THAT(complete(), ElementsAre(1, 2, 5));
  ASSERT_OK(pin_step(root, "2", false));
  ASSERT_OK(forget_steps(root, names, rules));
  EXPECT_THAT(complete(), ElementsAre(1, 5));
  EXPECT_THAT(entries(), ElementsAre(".pinned", "1", "5"));
  EXPECT_CODE(forget_steps(root, names, {.last = 0}), Code::kInvalidArgument);
}

/// A multiple stays whatever it is; what the other rules count must be a step.
TEST_F(Steps, WhatStaysAnywayIsNotProved) {
  for (uint64_t step = 1; step <= 8; ++step) ASSERT_OK(write(step, 1));
  for (const char* broken : {"/4", "/7", "/8"}) fs::remove(root + broken + "/state/_METADATA");
  Retention rules{.last = 2, .every_steps = 4};
  auto all = forget_steps(root, names, rules, {.dry_run = true});
  ASSERT_OK(all);
  auto lean = forget_steps(root, names, rules, {.lean = true});
  ASSERT_OK(lean);
  EXPECT_THAT(entries(), ElementsAre("4", "5", "6", "7", "8"));
  EXPECT_EQ(all->steps.size(), 5u);   // 1, 2, 3, 5, 6
  EXPECT_EQ(lean->steps.size(), 6u);  // and 4, which nobody has looked at
  EXPECT_EQ(lean->steps[3].bytes, 0u);
  EXPECT_THAT(lean->verdicts[3].reasons, ElementsAre("every 4 steps"));
  EXPECT_THAT(lean->verdicts[5].reasons, ElementsAre("the newest", "last 2"));
}

/// A name so long that what is removed can have none of its own.
TEST_F(Steps, OneThatCannotBeRemovedKeepsNoOther) {
  std::string prefix(237, 'p');
  for (uint64_t step : {8, 9, 10, 11, 12}) {
    ASSERT_OK(write(step, 1));
    fs::rename(root + "/" + std::to_string(step), root + "/" + prefix + "_" + std::to_string(step));
  }
  names = {prefix, 0};
  auto forgotten = forget_steps(root, names, {.last = 1});
  ASSERT_OK(forgotten);
  EXPECT_THAT(complete(), ElementsAre(10, 11, 12));
  ASSERT_EQ(forgotten->failures.size(), 2u);
  EXPECT_THAT(forgotten->failures.at(10).text(), HasSubstr("step 10 could not be removed: "));
}

TEST_F(Steps, StepsByName) {
  for (uint64_t step : {3, 5, 9}) ASSERT_OK(write(step, 1, {}, step == 5 ? 0.5 : 2));
  auto number = [&](const std::string& which) { return find_step(root + which)->step.facts.step; };
  EXPECT_EQ(number(""), 9u);
  EXPECT_EQ(number("@latest"), 9u);
  EXPECT_EQ(number("@3"), 3u);
  EXPECT_EQ(number("@best:loss"), 5u);
  EXPECT_EQ(number("@best:loss:max"), 9u);
  EXPECT_CODE(find_step(root + "@4"), Code::kNotFound);
  EXPECT_CODE(find_step(root + "@best:other"), Code::kNotFound);
  EXPECT_CODE(find_step(root + "@newest"), Code::kInvalidArgument);
  EXPECT_CODE(find_step(directory.at("nowhere")), Code::kNotFound);
  fs::remove(root + "/5/state/_METADATA");
  EXPECT_CODE(find_step(root + "@5"), Code::kCorrupt);
  EXPECT_EQ(number("@best:loss"), 9u);
  EXPECT_FALSE(*read_step(root, names, 7));
}

/// What is left by Orbax, by this library when it is killed, and by neither.
TEST_F(Steps, Pruning) {
  ASSERT_OK(write(5, 1));
  write_file(root + "/6.orbax-checkpoint-tmp/_CHECKPOINT_METADATA", "{}");
  write_file(root + "/.7.shardwright-1-0123456789abcdef/lock", "");
  write_file(root + "/.trash.4.00000001/state/x", "x");
  write_file(root + "/8/notes", "x");
  write_file(root + "/notes.txt", "mine");
  write_file(root + "/.new.9/x", "x");
  auto found = prune_steps(root, names, {.age = std::chrono::hours(1), .dry_run = true});
  ASSERT_OK(found);
  std::vector<std::string> named;
  for (const auto& leftover : *found) named.push_back(leftover.name);
  // Nobody writes here by the claim: what managers leave needs not be old.
  EXPECT_THAT(named, ElementsAre(".7.shardwright-1-0123456789abcdef", ".new.9", ".trash.4.00000001"));
  {
    auto claim = Claim::take(root, {});
    ASSERT_OK(claim);
    EXPECT_TRUE(list_leftovers(root, names, std::chrono::seconds(0))->at(1).live);
  }
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("5", "8", "notes.txt"));
}

/// What was finished once is no save under way. An hour need not pass, but one who copies it has a minute.
TEST_F(Steps, PruningWhatWasFinishedOnce) {
  for (uint64_t step : {5, 6, 7}) ASSERT_OK(write(step, 1));
  for (const char* step : {"/5", "/6"}) fs::remove(root + step + "/state/_METADATA");
  for (const auto& entry : fs::recursive_directory_iterator(root + "/5"))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::minutes(2));
  fs::last_write_time(root + "/5", fs::file_time_type::clock::now() - std::chrono::minutes(2));
  ASSERT_OK(prune_steps(root, names, {}));
  EXPECT_THAT(entries(), ElementsAre("6", "7"));
}

/// What only looks like ours, or like a step, is somebody's.
TEST_F(Steps, PruningLeavesWhatNeverWasAStep) {
  ASSERT_OK(write(5, 1));
  ASSERT_OK(write(6, 1));
  fs::remove(root + "/6/state/_METADATA");
  std::vector<std::string> others = {".5.shardwright-notes",  ".git", ".new.notes", ".trash.mine", "2024", "logs_9",
                                     "x.orbax-checkpoint-tmp"};
  for (const auto& name : others) write_file(root + "/" + name + "/notes.txt", "x");
  auto pruned = prune_steps(root, names, {.age = std::chrono::seconds(0)});
  ASSERT_OK(pruned);
  ASSERT_EQ(pruned->size(), 1u);
  EXPECT_THAT(pruned->front().what, HasSubstr("'state/_METADATA' is missing"));
  auto there = entries();
  EXPECT_THAT(there, IsSupersetOf(others));
  EXPECT_EQ(there.size(), others.size() + 1);
}

/// A link in a circle is what root cannot open either. Nobody can tell what the step is: that is neither missing nor incomplete.
TEST_F(Steps, WhatCannotBeLookedAtIsNotMissing) {
  for (uint64_t step : {1, 2, 3}) ASSERT_OK(write(step, 1));
  fs::rename(root + "/3/state", directory.at("away"));
  fs::create_symlink("state", root + "/3/state");
  auto proof = prove_step(root + "/3");
  EXPECT_FALSE(proof.complete);
  EXPECT_TRUE(proof.trouble) << proof.text;
  EXPECT_FALSE(latest_step(root, names).ok());
  EXPECT_FALSE(find_step(root).ok());
  EXPECT_EQ(find_step(root + "@2")->step.facts.step, 2u);
  auto forgotten = forget_steps(root, names, {.last = 1});
  ASSERT_OK(forgotten);
  EXPECT_THAT(forgotten->verdicts.back().reasons, ElementsAre(HasSubstr("nobody can tell")));
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("2", "3"));
  for (uint64_t step : {1, 3}) EXPECT_FALSE(write(step, 1).ok());
  fs::remove(root + "/3/state");
  fs::rename(directory.at("away"), root + "/3/state");
  EXPECT_EQ((*latest_step(root, names))->facts.step, 3u);
}

TEST_F(Steps, AReplacementInTwoRenamesIsFinished) {
  ASSERT_OK(write(5, 1));
  ASSERT_OK(write(6, 2));
  fs::rename(root + "/5", root + "/.old.5");
  fs::rename(root + "/6", root + "/.new.5");
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_THAT(entries(), ElementsAre("5"));
  EXPECT_EQ(value_of(5), 2.f);
  fs::rename(root + "/5", root + "/.old.5");
  ASSERT_OK(prune_steps(root, names, {.age = std::chrono::seconds(0)}));
  EXPECT_EQ(value_of(5), 2.f);
}

TEST_F(Steps, OfOrbax) {
  std::string samples = std::string(SHARDWRIGHT_TEST_DATA) + "/orbax/";
  auto steps = list_steps(samples + "manager", std::nullopt);
  ASSERT_OK(steps);
  ASSERT_EQ(steps->size(), 3u);
  for (const auto& step : *steps) EXPECT_TRUE(step.complete) << step.name << ": " << step.proof;
  EXPECT_EQ((*steps)[1].metadata, Json({{"note", "step10"}}));
  EXPECT_NEAR((*steps)[1].facts.metrics.at("loss"), 1 / 11., 1e-9);
  auto named = list_steps(samples + "manager_single", StepNames{"ckpt", 6});
  ASSERT_OK(named);
  ASSERT_EQ(named->size(), 1u);
  EXPECT_TRUE(named->front().complete) << named->front().proof;
}

}  // namespace
}  // namespace shardwright
