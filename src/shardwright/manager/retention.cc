#include "shardwright/manager/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shardwright {
namespace {

std::optional<double> metric_of(const StepFacts& step, std::string_view name) {
  auto found = step.metrics.find(std::string(name));
  if (found == step.metrics.end() || std::isnan(found->second)) return std::nullopt;
  return found->second;
}

/// Steps that have the metric, the best first; of equals the newest.
std::vector<size_t> by_metric(std::span<const StepFacts> steps, std::string_view metric, bool max) {
  std::vector<size_t> order;
  for (size_t i = 0; i < steps.size(); ++i)
    if (metric_of(steps[i], metric)) order.push_back(i);
  std::ranges::sort(order, [&](size_t a, size_t b) {
    double x = *metric_of(steps[a], metric), y = *metric_of(steps[b], metric);
    if (x != y) return max ? x > y : x < y;
    return steps[a].step > steps[b].step;
  });
  return order;
}

class Judge {
 public:
  Judge(std::span<const StepFacts> steps, const Retention& rules) : steps_(steps.begin(), steps.end()), rules_(rules) {
    std::ranges::sort(steps_, {}, &StepFacts::step);
    for (const auto& step : steps_) verdicts_.push_back({step.step});
  }

  std::vector<Verdict> judge() {
    if (steps_.empty()) return {};
    keep_counted(steps_.size() - 1, "the newest");
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].pinned) keep(i, "pinned");
      if (rules_.keeps_all()) keep(i, "nothing is ever removed");
      if (rules_.every_steps && steps_[i].step % *rules_.every_steps == 0)
        keep(i, fmt::format("every {} steps", *rules_.every_steps));
      if (std::ranges::find(rules_.steps, steps_[i].step) != rules_.steps.end()) keep(i, "asked for");
      if (rules_.predicate && rules_.predicate(steps_[i])) keep(i, "the predicate");
    }
    judge_last();
    judge_time();
    for (const auto& rule : rules_.best) judge_best(rule);
    return std::move(verdicts_);
  }

 private:
  void keep(size_t i, std::string reason) { verdicts_[i].reasons.push_back(std::move(reason)); }
  void keep_counted(size_t i, std::string reason) {
    verdicts_[i].counted = true;
    keep(i, std::move(reason));
  }

  void judge_last() {
    if (!rules_.last) return;
    size_t first = steps_.size() - std::min<uint64_t>(*rules_.last, steps_.size());
    for (size_t i = first; i < steps_.size(); ++i) keep_counted(i, fmt::format("last {}", *rules_.last));
  }

  void judge_time() {
    if (!rules_.every_seconds) return;
    std::optional<uint64_t> kept_ns;
    for (size_t i = 0; i < steps_.size(); ++i) {
      uint64_t now_ns = steps_[i].time_ns;
      // A clock that was set back: later steps are not earlier.
      if (kept_ns && (now_ns < *kept_ns || (now_ns - *kept_ns) / 1'000'000'000 < *rules_.every_seconds)) continue;
      kept_ns = now_ns;
      keep_counted(i, fmt::format("every {} s", *rules_.every_seconds));
    }
  }

  void judge_best(const Retention::Best& rule) {
    auto order = by_metric(steps_, rule.metric, rule.max);
    order.resize(std::min<uint64_t>(order.size(), rule.count));
    for (size_t i : order)
      keep_counted(i, fmt::format("best {} by {}: {}", rule.count, rule.metric, *metric_of(steps_[i], rule.metric)));
    if (!rule.keep_missing) return;
    for (size_t i = 0; i < steps_.size(); ++i)
      if (!metric_of(steps_[i], rule.metric)) keep(i, fmt::format("no {} to judge it by", rule.metric));
  }

  std::vector<StepFacts> steps_;
  const Retention& rules_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

bool Retention::keeps_all() const {
  return !last && !every_steps && !every_seconds && best.empty() && steps.empty() && !predicate;
}

Status Retention::check() const {
  auto zero = [](const char* what) {
    return fail(Code::kInvalidArgument, fmt::format("{} of 0 would keep nothing", what))
        .with_found("0")
        .with_expected("1 or more, or no such rule")
        .with_hint("the newest step is never removed");
  };
  if (last == 0) return zero("keeping the last");
  if (every_steps == 0) return zero("a distance in steps");
  if (every_seconds == 0) return zero("a distance in time");
  for (const auto& rule : best) {
    if (rule.count == 0) return zero("keeping the best");
    if (rule.metric.empty()) return fail(Code::kInvalidArgument, "the best steps need a metric to go by");
  }
  return {};
}

std::vector<Verdict> judge_steps(std::span<const StepFacts> steps, const Retention& retention) {
  return Judge(steps, retention).judge();
}

std::optional<uint64_t> best_step(std::span<const StepFacts> steps, std::string_view metric, bool max) {
  auto order = by_metric(steps, metric, max);
  if (order.empty()) return std::nullopt;
  return steps[order.front()].step;
}

}  // namespace shardwright
