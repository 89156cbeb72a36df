/// Rules from names to layouts.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shardwright/base/regex.h"
#include "shardwright/layout/tensor_layout.h"

namespace shardwright {

/// Rules over one mesh, in the order they were set. A name that is a rule's pattern, letter by letter, takes that rule; else the one rule
/// whose pattern, a regular expression in Python's syntax, is found in the name (kSearch) or matches all of it (kFullMatch). With kExact patterns
/// are names and nothing else. Keys that end in "/output" are those of layer outputs. Thread-safe to read.
class LayoutMap {
 public:
  enum class Match : uint8_t { kSearch, kFullMatch, kExact };
  struct Rule {
    std::string pattern;
    TensorLayout layout;
    std::optional<Regex> regex;  ///< none with kExact
  };

  explicit LayoutMap(DeviceMesh mesh, Match match = Match::kSearch) : mesh_(std::move(mesh)), match_(match) {}
  /// Errors: kInvalidArgument, the pattern named: it is there already, it is no regular expression, or the layout does not go with the mesh.
  Status set(std::string pattern, TensorLayout layout);

  /// Number of the rule that decides for `name`; nullopt: none, the tensor is replicated.
  /// Errors: kInvalidArgument when two patterns match, both named; kResourceExhausted when a pattern takes too long.
  Result<std::optional<uint32_t>> find(std::string_view name) const;

  const DeviceMesh& mesh() const { return mesh_; }
  Match match() const { return match_; }
  std::span<const Rule> rules() const { return rules_; }
  /// Of the rule that find() gave; replicated where it gave none.
  TensorLayout layout_of(std::optional<uint32_t> rule) const { return rule ? rules_[*rule].layout : TensorLayout{}; }

 private:
  friend class LayoutFinder;
  DeviceMesh mesh_;
  Match match_;
  std::vector<Rule> rules_;
  std::unordered_map<std::string, uint32_t> by_pattern_;
};

/// A tensor by its rule.
struct LaidOut {
  std::optional<uint32_t> rule;  ///< none: replicated
  ShardGrid grid;
};

/// find() for many names: a rule is tried only on names that have what its pattern cannot do without.
/// Not thread-safe; `map` outlives it and does not change.
class LayoutFinder {
 public:
  explicit LayoutFinder(const LayoutMap& map);
  Result<std::optional<uint32_t>> find(std::string_view name);
  /// Errors: those of find() and ShardGrid::create, with the name of the tensor and the rule.
  Result<LaidOut> lay_out(std::string_view name, std::span<const int64_t> shape);
  /// True when a name so far was the rule's, or one of two rules'.
  bool used(uint32_t rule) const { return used_[rule]; }

 private:
  /// Of all pairs of neighbouring bytes of a text, hashed: what a text contains has no pair that it lacks.
  using Pairs = std::bitset<256>;
  using Hits = std::vector<uint32_t>;  ///< at most two: more are no better
  static Pairs pairs_of(std::string_view text);
  Result<Hits> hits(std::string_view name) const;

  const LayoutMap& map_;
  std::vector<Pairs> needed_;  ///< by rule
  std::vector<bool> used_;
};

}  // namespace shardwright
