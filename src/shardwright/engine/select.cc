#include "shardwright/engine/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "shardwright/base/regex.h"
#include "shardwright/base/text.h"
#include "shardwright/tensor/convert.h"

namespace shardwright {
namespace {

bool included(const Selection& selection, std::string_view name) {
  auto matches = [&](const std::string& glob) { return glob_match(glob, name); };
  bool in = selection.include.empty() || std::ranges::any_of(selection.include, matches);
  return in && std::ranges::none_of(selection.exclude, matches);
}

/// The globs as the catalogue's names are spelled.
Result<Selection> spell_globs(const Catalog& from, Selection selection) {
  for (auto& glob : selection.exclude) glob = find_glob(from, glob).value_or(glob);
  for (auto& glob : selection.include) {
    if (auto found = find_glob(from, glob)) {
      glob = std::move(*found);
      continue;
    }
    auto near = nearest_tensors(from, glob);
    auto error = fail(Code::kNotFound, "no tensor matches '" + glob + "'");
    if (!near.empty()) error.hint = "nearest name: " + near[0];
    return error;
  }
  return selection;
}

class Renamer {
 public:
  static Result<Renamer> create(const Selection& selection) {
    Renamer out;
    for (const auto& [pattern, replacement] : selection.rename) {
      SHARDWRIGHT_ASSIGN(auto regex, Regex::compile(pattern));
      out.rules_.emplace_back(std::move(regex), replacement);
    }
    return out;
  }
  Result<std::string> apply(std::string_view name) const {
    std::string out(name);
    for (const auto& [regex, replacement] : rules_) {
      SHARDWRIGHT_ASSIGN(out, regex.substitute(replacement, out));
    }
    return out;
  }

 private:
  std::vector<std::pair<Regex, std::string>> rules_;
};

bool floating(DType dtype) { return dtype_row(dtype).kind == Kind::kFloat && dtype != DType::kF8E8M0; }

}  // namespace

Result<Selected> select_tensors(const Catalog& from, const Selection& wanted) {
  SHARDWRIGHT_ASSIGN(Selection selection, spell_globs(from, wanted));
  SHARDWRIGHT_ASSIGN(auto renamer, Renamer::create(selection));
  if (selection.dtype && !floating(*selection.dtype))
    return fail(Code::kInvalidArgument, "only casts to floating types are made")
        .with_found(std::string(dtype_row(*selection.dtype).name));
  bool plain = selection.include.empty() && selection.exclude.empty() && selection.rename.empty() && !selection.dtype;
  if (plain) return Selected{from, {}};

  Selected out;
  CatalogBuilder builder;
  std::unordered_map<TensorId, TensorId> kept;  // source tensor that holds bytes -> target tensor
  std::unordered_map<std::string, TensorId> taken;
  for (TensorId id = 0; id < from.size(); ++id) {
    auto spec = from.spec(id);
    if (!included(selection, spec.name)) continue;
    SHARDWRIGHT_ASSIGN(auto name, renamer.apply(spec.name));
    if (!selection.rename.empty()) {
      auto [at, fresh] = taken.emplace(name, id);
      if (!fresh)
        return fail(Code::kInvalidArgument, "two tensors would get the name '" + name + "'")
            .with_found("'" + std::string(from.spec(at->second).name) + "' and '" + std::string(spec.name) + "'");
    }
    auto dtype = selection.dtype && floating(spec.dtype) ? *selection.dtype : spec.dtype;
    if (!bytes_of_elements(dtype, spec.elements()))
      return fail(Code::kInvalidArgument,
                  "its number of elements does not fit whole bytes of " + std::string(dtype_row(dtype).name))
          .at_tensor(std::string(spec.name))
          .with_hint("--exclude it, or choose another --dtype");
    SHARDWRIGHT_ASSIGN(auto target, builder.add_tensor(name, dtype, spec.shape));
    out.origin.push_back(id);
    auto [first, fresh] = kept.emplace(from.same_as(id), target);
    if (!fresh) builder.tie(target, first->second);
  }
  if (out.origin.empty() && from.size() > 0)
    return fail(Code::kNotFound, "no tensor is left to copy").with_hint("--include and --exclude leave none");
  for (const auto& key : from.value_keys()) builder.set_value(key, *from.value(key));
  for (const auto& file : from.side_files()) builder.add_side_file(file);
  SHARDWRIGHT_ASSIGN(out.want, builder.build(/*partial=*/true));
  return out;
}

Result<std::vector<TensorId>> find_tensors(const Catalog& catalog, const std::vector<std::string>& names) {
  std::vector<TensorId> ids;
  if (names.empty()) {
    ids.resize(catalog.size());
    std::iota(ids.begin(), ids.end(), 0u);
    return ids;
  }
  std::vector<std::string_view> missing;
  for (const auto& name : names) {
    if (auto id = catalog.find(name)) {
      ids.push_back(*id);
    } else {
      missing.push_back(name);
    }
  }
  if (missing.empty()) return ids;
  auto near = nearest_tensors(catalog, missing[0]);
  auto error = fail(Code::kNotFound, "no such tensor").at_tensor(std::string(missing[0]));
  if (missing.size() > 1) error.message = fmt::format("no such tensor; missing are '{}'", fmt::join(missing, "', '"));
  if (!near.empty()) error.hint = "nearest name: '" + near[0] + "'";
  return error;
}

}  // namespace shardwright
