#include "shardwright/manager/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using Numbers = std::vector<uint64_t>;
using testing::ElementsAre;

std::vector<StepFacts> steps_of(const Numbers& numbers) {
  std::vector<StepFacts> out;
  for (uint64_t number : numbers) out.push_back({number, number * 10'000'000'000});
  return out;
}

Numbers kept(std::span<const StepFacts> steps, const Retention& rules) {
  Numbers out;
  for (const auto& verdict : judge_steps(steps, rules))
    if (verdict.keep()) out.push_back(verdict.step);
  return out;
}

TEST(Retention, WithoutRulesAllStay) { EXPECT_THAT(kept(steps_of({3, 1, 2}), {}), ElementsAre(1, 2, 3)); }

TEST(Retention, Last) {
  EXPECT_THAT(kept(steps_of({0, 2, 4, 6, 8}), {.last = 2}), ElementsAre(6, 8));
  EXPECT_THAT(kept(steps_of({0, 2}), {.last = 5}), ElementsAre(0, 2));
  EXPECT_TRUE(judge_steps({}, {.last = 1}).empty());
}

/// What Orbax 0.12.8 keeps of steps 0 to 12, saved at every second: keep_period 4, max_to_keep 2.
TEST(Retention, UnionAsOrbaxHasIt) {
  EXPECT_THAT(kept(steps_of({0, 2, 4, 6, 8, 10, 12}), {.last = 2, .every_steps = 4}), ElementsAre(0, 4, 8, 10, 12));
}

TEST(Retention, EveryIntervalCountsFromTheOneKept) {
  auto steps = steps_of({0, 1, 2, 3, 4, 5, 6});  // 10 s apart
  EXPECT_THAT(kept(steps, {.every_seconds = 25}), ElementsAre(0, 3, 6));
  steps[6].time_ns = 0;  // the clock was set back
  EXPECT_THAT(kept(steps, {.every_seconds = 25}), ElementsAre(0, 3, 6));
}

std::vector<StepFacts> with_losses(const std::vector<double>& losses) {
  std::vector<StepFacts> out;
  for (size_t i = 0; i < losses.size(); ++i) out.push_back({i, i, false, {{"loss", losses[i]}}});
  return out;
}

/// Orbax removes the newest step when it is not among the best; here it stays.
TEST(Retention, BestAndTheNewest) {
  auto steps = with_losses({.5, .9, .1, .95, .2});
  EXPECT_THAT(kept(steps, {.best = {{"loss", 2, true}}}), ElementsAre(1, 3, 4));
  EXPECT_THAT(kept(steps, {.best = {{"loss", 2, false}}}), ElementsAre(2, 4));
  EXPECT_EQ(best_step(steps, "loss", true), 3u);
  EXPECT_EQ(best_step(steps, "loss", false), 2u);
  EXPECT_EQ(best_step(steps, "other", false), std::nullopt);
}

TEST(Retention, OfEqualsTheNewest) {
  EXPECT_EQ(best_step(with_losses({1, 1, 2}), "loss", false), 1u);
  EXPECT_THAT(kept(with_losses({1, 1, 2}), {.best = {{"loss", 1, false}}}), ElementsAre(1, 2));
}

TEST(Retention, MissingMetric) {
  auto steps = with_losses({3, std::nan(""), 1, 2});
  steps.push_back({4});
  steps.push_back({5, 5, false, {{"loss", 9}}});
  EXPECT_THAT(kept(steps, {.best = {{"loss", 1, false, true}}}), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(kept(steps, {.best = {{"loss", 1, false, false}}}), ElementsAre(2, 5));
}

TEST(Retention, PinnedAskedForAndPredicate) {
  auto steps = steps_of({1, 2, 3, 4, 5});
  steps[1].pinned = true;
  Retention rules{.last = 1, .steps = {3}, .predicate = [](const StepFacts& step) { return step.step == 1; }};
  auto verdicts = judge_steps(steps, rules);
  EXPECT_THAT(kept(steps, rules), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(verdicts[0].reasons, ElementsAre("the predicate"));
  EXPECT_THAT(verdicts[1].reasons, ElementsAre("pinned"));
  EXPECT_THAT(verdicts[2].reasons, ElementsAre("asked for"));
  EXPECT_THAT(verdicts[3].reasons, ElementsAre());
  EXPECT_THAT(verdicts[4].reasons, ElementsAre("the newest", "last 1"));
}

TEST(Retention, RulesThatKeepNothingAreRefused) {
  for (const Retention& rules : {Retention{.last = 0}, Retention{.every_steps = 0}, Retention{.every_seconds = 0},
                                 Retention{.best = {{"loss", 0}}}, Retention{.best = {{"", 1}}}})
    EXPECT_CODE(rules.check(), Code::kInvalidArgument);
  EXPECT_OK(Retention{}.check());
}

Retention random_rules(std::mt19937& random) {
  Retention rules;
  if (random() % 2) rules.last = 1 + random() % 4;
  if (random() % 2) rules.every_steps = 1 + random() % 20;
  if (random() % 2) rules.every_seconds = 1 + random() % 100;
  if (random() % 2) rules.best.push_back({"loss", 1 + random() % 3, random() % 2 == 0, random() % 2 == 0});
  if (rules.keeps_all()) rules.last = 1;
  return rules;
}

/// A run that saves, judges and removes after each save: whatever the rules, the newest, the best of all that were ever saved and the pinned are
/// there, judging again removes nothing, and the order in which steps are listed does not matter.
TEST(Retention, RandomRuns) {
  auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int run = 0; run < 300; ++run) {
    Retention rules = random_rules(random);
    std::vector<StepFacts> there;
    std::optional<double> best;
    std::set<uint64_t> pinned;
    uint64_t step = 0, time_ns = 0;
    for (int save = 0; save < 30; ++save) {
      step += 1 + random() % 5;
      time_ns += random() % 40 * 1'000'000'000;
      StepFacts facts{step, time_ns, random() % 10 == 0, {}};
      if (random() % 5) {
        double loss = static_cast<double>(random() % 50);
        facts.metrics["loss"] = loss;
        bool max = !rules.best.empty() && rules.best[0].max;
        best = best ? (max ? std::max(*best, loss) : std::min(*best, loss)) : loss;
      }
      if (facts.pinned) pinned.insert(step);
      there.push_back(facts);
      std::ranges::shuffle(there, random);
      auto keep = kept(there, rules);
      std::erase_if(there, [&](const StepFacts& s) { return !std::ranges::binary_search(keep, s.step); });
      ASSERT_TRUE(std::ranges::binary_search(keep, step));
      for (uint64_t pin : pinned) ASSERT_TRUE(std::ranges::binary_search(keep, pin));
      ASSERT_EQ(kept(there, rules), keep) << "judged again";
      if (rules.best.empty() || !best) continue;
      bool has_best = std::ranges::any_of(
          there, [&](const StepFacts& s) { return s.metrics.contains("loss") && s.metrics.at("loss") == *best; });
      ASSERT_TRUE(has_best);
    }
  }
}

}  // namespace
}  // namespace shardwright
