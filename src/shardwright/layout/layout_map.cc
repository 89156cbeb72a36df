#include "shardwright/layout/layout_map.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardwright {
namespace {

constexpr size_t kMostRemembered = 100'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// True when no digit can matter but by being one: none is named, and none is compared with another.
bool is_digit_blind(std::string_view pattern) {
  return std::none_of(pattern.begin(), pattern.end(), is_digit) && pattern.find("(?P=") == pattern.npos &&
         pattern.find("\\k") == pattern.npos && pattern.find("\\g") == pattern.npos;
}

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

Status LayoutMap::set(std::string pattern, TensorLayout layout) {
  std::string rule = "in the rule " + in_quotes(pattern);
  if (by_pattern_.contains(pattern))
    return fail(Code::kInvalidArgument, "there is a rule " + in_quotes(pattern) + " already");
  auto regex = Regex::compile(pattern);
  if (!regex.ok()) return std::move(regex.error()).within(rule);
  if (auto status = check_layout(mesh_, layout); !status.ok()) return std::move(status.error()).within(rule);
  by_pattern_.emplace(pattern, static_cast<uint32_t>(rules_.size()));
  rules_.push_back({std::move(pattern), std::move(layout), std::move(*regex)});
  return {};
}

Result<std::optional<uint32_t>> LayoutMap::find(std::string_view name) const { return LayoutFinder(*this).find(name); }

LayoutFinder::LayoutFinder(const LayoutMap& map) : map_(map), used_(map.rules_.size()) {
  for (uint32_t i = 0; i < map.rules_.size(); ++i)
    (is_digit_blind(map.rules_[i].pattern) ? digit_blind_ : others_).push_back(i);
}

Result<LayoutFinder::Hits> LayoutFinder::match(std::span<const uint32_t> rules, std::string_view name) const {
  Hits hits;
  for (uint32_t i : rules) {
    const Regex& regex = map_.rules_[i].regex;
    auto matched = map_.match_ == LayoutMap::Match::kSearch ? regex.search(name) : regex.fullmatch(name);
    if (!matched.ok()) return std::move(matched.error());
    if (!*matched) continue;
    hits.push_back(i);
    if (hits.size() == 2) break;
  }
  return hits;
}

Result<LayoutFinder::Hits> LayoutFinder::hits(std::string_view name) {
  auto exact = map_.by_pattern_.find(std::string(name));
  if (exact != map_.by_pattern_.end()) return Hits{exact->second};
  std::string blind(name);
  std::replace_if(blind.begin(), blind.end(), is_digit, '0');
  auto known = remembered_.find(blind);
  if (known == remembered_.end()) {
    if (remembered_.size() >= kMostRemembered) remembered_.clear();
    SHARDWRIGHT_ASSIGN(Hits found, match(digit_blind_, name));
    known = remembered_.emplace(std::move(blind), std::move(found)).first;
  }
  SHARDWRIGHT_ASSIGN(Hits all, match(others_, name));
  all.insert(all.end(), known->second.begin(), known->second.end());
  std::sort(all.begin(), all.end());
  return all;
}

Result<std::optional<uint32_t>> LayoutFinder::find(std::string_view name) {
  SHARDWRIGHT_ASSIGN(Hits found, hits(name));
  for (uint32_t rule : found) used_[rule] = true;
  if (found.empty()) return std::optional<uint32_t>();
  if (found.size() == 1) return std::optional(found[0]);
  return fail(Code::kInvalidArgument, fmt::format("two rules match: '{}' and '{}'", map_.rules_[found[0]].pattern,
                                                  map_.rules_[found[1]].pattern))
      .at_tensor(std::string(name))
      .with_hint("narrow one of them, or add a rule that is the name itself");
}

Result<LaidOut> LayoutFinder::lay_out(std::string_view name, std::span<const int64_t> shape) {
  SHARDWRIGHT_ASSIGN(auto rule, find(name));
  auto grid = ShardGrid::create(map_.mesh_, rule ? map_.rules_[*rule].layout : TensorLayout{}, shape);
  if (grid.ok()) return LaidOut{rule, std::move(*grid)};
  return std::move(grid.error())
      .at_tensor(std::string(name))
      .within("by the rule " + in_quotes(map_.rules_[*rule].pattern) + " to " + map_.rules_[*rule].layout.text());
}

}  // namespace shardwright
