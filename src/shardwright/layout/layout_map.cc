#include "shardwright/layout/layout_map.h"

#include <fmt/format.h>

namespace shardwright {
namespace {

std::string in_quotes(std::string_view text) { return "'" + std::string(text.substr(0, 200)) + "'"; }

}  // namespace

Status LayoutMap::set(std::string pattern, TensorLayout layout) {
  std::string rule = "in the rule " + in_quotes(pattern);
  if (by_pattern_.contains(pattern))
    return fail(Code::kInvalidArgument, "there is a rule " + in_quotes(pattern) + " already");
  std::optional<Regex> regex;
  if (match_ != Match::kExact) {
    auto compiled = Regex::compile(pattern);
    if (!compiled.ok()) return std::move(compiled.error()).within(rule);
    regex = std::move(*compiled);
  }
  if (auto status = check_layout(mesh_, layout); !status.ok()) return std::move(status.error()).within(rule);
  by_pattern_.emplace(pattern, static_cast<uint32_t>(rules_.size()));
  rules_.push_back({std::move(pattern), std::move(layout), std::move(regex)});
  return {};
}

Result<std::optional<uint32_t>> LayoutMap::find(std::string_view name) const { return LayoutFinder(*this).find(name); }

LayoutFinder::LayoutFinder(const LayoutMap& map) : map_(map), used_(map.rules_.size()) {
  if (map.match_ == LayoutMap::Match::kExact) return;
  for (const auto& rule : map.rules_) needed_.push_back(pairs_of(rule.regex->literal()));
}

LayoutFinder::Pairs LayoutFinder::pairs_of(std::string_view text) {
  Pairs pairs;
  for (size_t i = 1; i < text.size(); ++i)
    pairs.set((static_cast<uint8_t>(text[i - 1]) * 31u + static_cast<uint8_t>(text[i])) % pairs.size());
  return pairs;
}

Result<LayoutFinder::Hits> LayoutFinder::hits(std::string_view name) const {
  auto exact = map_.by_pattern_.find(std::string(name));
  if (exact != map_.by_pattern_.end()) return Hits{exact->second};
  Hits hits;
  if (map_.match_ == LayoutMap::Match::kExact) return hits;
  const Pairs lacking = ~pairs_of(name);
  for (uint32_t i = 0; i < map_.rules_.size() && hits.size() < 2; ++i) {
    if ((needed_[i] & lacking).any()) continue;
    const Regex& regex = *map_.rules_[i].regex;
    auto matched = map_.match_ == LayoutMap::Match::kSearch ? regex.search(name) : regex.fullmatch(name);
    if (!matched.ok()) return std::move(matched.error());
    if (*matched) hits.push_back(i);
  }
  return hits;
}

Result<std::optional<uint32_t>> LayoutFinder::find(std::string_view name) {
  SHARDWRIGHT_ASSIGN(Hits found, hits(name));
  for (uint32_t rule : found) used_[rule] = true;
  if (found.empty()) return std::optional<uint32_t>();
  if (found.size() == 1) return std::optional(found[0]);
  return fail(Code::kInvalidArgument, "two rules match: " + in_quotes(map_.rules_[found[0]].pattern) + " and " +
                                          in_quotes(map_.rules_[found[1]].pattern))
      .at_tensor(std::string(name))
      .with_hint("narrow one of them, or add a rule that is the name itself");
}

Result<LaidOut> LayoutFinder::lay_out(std::string_view name, std::span<const int64_t> shape) {
  SHARDWRIGHT_ASSIGN(auto rule, find(name));
  auto grid = ShardGrid::create(map_.mesh_, map_.layout_of(rule), shape);
  if (grid.ok()) return LaidOut{rule, std::move(*grid)};
  return std::move(grid.error())
      .at_tensor(std::string(name))
      .within("by the rule " + in_quotes(map_.rules_[*rule].pattern) + " to " + map_.rules_[*rule].layout.text());
}

}  // namespace shardwright
