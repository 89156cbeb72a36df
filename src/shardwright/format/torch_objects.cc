#include "shardwright/format/torch_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "shardwright/base/text.h"
#include "shardwright/format/torch_rebuild.h"

namespace shardwright {
namespace {

using Value = PickleValue;

constexpr size_t kMaxDepth = 100;
constexpr uint64_t kMaxNameBytes = 256 * MiB;  // of all names together
constexpr uint64_t kMaxTensors = 4'000'000;    // of one pickle
/// What is no tensor is listed so far, and counted from there on.
constexpr size_t kMostListed = 10'000, kMostText = 4 * KiB;

std::string full_name(const Pickle::Global& global) {
  return std::string(global.module) + "." + std::string(global.name);
}

/// Classes whose elements are those of a dictionary.
bool is_mapping(const Pickle::Global& global) {
  return global.module == "collections" &&
         (global.name == "OrderedDict" || global.name == "Counter" || global.name == "defaultdict");
}

class Walk {
 public:
  Walk(const Pickle& pickle, const TorchStorages& storages, const TorchRebuild::Emit& emit)
      : pickle_(pickle), rebuild_(pickle, storages, emit) {}

  Result<TorchOther> run() {
    for (const auto& global : pickle_.globals())
      if (runs_code(global))
        return fail(Code::kCorrupt, "the pickle names code to be run, as no file of tensors does")
            .with_found(full_name(global))
            .with_hint("do not load it with anything that runs pickles");
    most_visits_ = 4 * pickle_.values() + 100'000;
    SHARDWRIGHT_TRY(visit(pickle_.root()));
    if (not_listed_ > 0) out_.opaque["..."] = fmt::format("{} more, not listed", not_listed_);
    return std::move(out_);
  }

 private:
  /// Shared containers are walked once for every way to them, so that the way is bounded: by all that is looked at on it.
  Status look_at(size_t values) {
    visits_ += values;
    bool fits = visits_ <= most_visits_ && name_bytes_ <= kMaxNameBytes;
    if (depth_ <= kMaxDepth && fits) return {};
    return fail(Code::kCorrupt, depth_ > kMaxDepth
                                    ? "objects are nested too deep"
                                    : "objects hold one another so often that their names would never end")
        .at_tensor(path_.substr(0, 200));
  }

  Status visit(Value value) {
    name_bytes_ += path_.size();
    SHARDWRIGHT_TRY(look_at(1));
    switch (value.type) {
      case Value::kDict: return visit_pairs(pickle_.items(value));
      case Value::kTuple:
      case Value::kList: return visit_list(pickle_.items(value));
      case Value::kCall: return visit_call(value);
      case Value::kPersistent: return take(rebuild_.whole_storage(name(), value));
      case Value::kGlobal: return visit_global(pickle_.global(value));
      default: return keep(value);
    }
  }

  Status visit_below(std::string_view key, Value value) {
    size_t before = path_.size();
    if (depth_ > 0) path_ += '.';
    path_ += key;
    ++depth_;
    auto status = visit(value);
    --depth_;
    path_.resize(before);
    return status;
  }

  Status visit_pairs(std::span<const Value> items) {
    SHARDWRIGHT_TRY(look_at(items.size()));
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto& key = items[i];
      if (key.is(Value::kText))
        SHARDWRIGHT_TRY(visit_below(pickle_.text(key), items[i + 1]));
      else if (key.is(Value::kInt))
        SHARDWRIGHT_TRY(visit_below(std::to_string(key.integer()), items[i + 1]));
      else
        list_opaque("an entry whose key is neither text nor integer");
    }
    return {};
  }

  /// Plain values are one value together: betas = [0.9, 0.999].
  Status visit_list(std::span<const Value> items) {
    SHARDWRIGHT_TRY(look_at(items.size()));
    bool plain = std::ranges::all_of(items, [](const Value& item) {
      return item.is(Value::kNone) || item.is(Value::kBool) || item.is(Value::kInt) || item.is(Value::kFloat) ||
             item.is(Value::kText);
    });
    if (!plain) {
      for (size_t i = 0; i < items.size(); ++i) SHARDWRIGHT_TRY(visit_below(std::to_string(i), items[i]));
      return {};
    }
    Json array = Json::array();
    for (const auto& item : items) {
      if (array.size() == kMostListed) break;
      auto json = json_of(item);
      if (!json) break;
      array.push_back(std::move(*json));
    }
    if (array.size() == items.size())
      list_value(std::move(array), items.size());
    else
      list_opaque(fmt::format("a list of {} values", items.size()));
    return {};
  }

  Status visit_call(Value value) {
    const auto& call = pickle_.call(value);
    auto function = pickle_.global(call.callable);
    if (is_torch_rebuild(function)) return take(rebuild_.run(name(), value));
    auto arguments = pickle_.items(call.arguments);
    if (is_mapping(function)) {
      // Python 2 gives the elements of an OrderedDict as a list of pairs.
      auto pairs =
          !arguments.empty() && arguments[0].is(Value::kList) ? pickle_.items(arguments[0]) : std::span<const Value>();
      SHARDWRIGHT_TRY(look_at(pairs.size()));
      for (const auto& pair : pairs)
        if ((pair.is(Value::kTuple) || pair.is(Value::kList)) && pickle_.items(pair).size() == 2)
          SHARDWRIGHT_TRY(visit_pairs(pickle_.items(pair)));
      return visit_pairs(call.items);
    }
    if (function.module == "torch" && function.name == "Size" && arguments.size() == 1 &&
        arguments[0].is(Value::kTuple))
      return visit_list(pickle_.items(arguments[0]));
    list_opaque(full_name(function));
    return {};
  }

  Status visit_global(const Pickle::Global& global) {
    if (global.module == "torch")
      list_value(full_name(global), 1);  // a dtype
    else
      list_opaque(full_name(global));
    return {};
  }

  Status keep(Value value) {
    if (auto json = json_of(value))
      list_value(std::move(*json), 1);
    else
      list_opaque(value.is(Value::kText)     ? fmt::format("a text of {} bytes", value.count)
                  : value.is(Value::kBytes)  ? fmt::format("{} bytes", value.count)
                  : value.is(Value::kBigInt) ? fmt::format("an integer of {} bytes", value.count)
                                             : "a set");
    return {};
  }

  Status take(TorchRebuild::Outcome outcome) {
    if (!outcome.ok()) return std::move(outcome.error());
    if (*outcome) list_opaque(**outcome);
    if (++tensors_ <= kMaxTensors) return {};
    return fail(Code::kUnsupported, "pickle holds too many tensors")
        .with_expected(fmt::format("at most {}", kMaxTensors));
  }

  std::optional<Json> json_of(Value value) const {
    switch (value.type) {
      case Value::kNone: return Json();
      case Value::kBool: return Json(value.at != 0);
      case Value::kInt: return Json(value.integer());
      case Value::kFloat:
        return std::isfinite(value.real()) ? Json(value.real()) : Json(fmt::format("{}", value.real()));
      case Value::kText:
        if (value.count > kMostText || !is_utf8(pickle_.text(value))) return std::nullopt;
        return Json(pickle_.text(value));
      default: return std::nullopt;
    }
  }

  std::string name() const { return depth_ == 0 ? "tensor" : path_; }
  /// As a key of JSON.
  std::string listed_name() const {
    if (depth_ == 0) return "(root)";
    return is_utf8(path_) ? path_ : json_quote(path_);
  }
  bool may_list(size_t size) {
    if (listed_ + size > kMostListed || path_.size() > kMostText) {
      ++not_listed_;
      return false;
    }
    listed_ += size;
    return true;
  }
  void list_value(Json value, size_t size) {
    if (may_list(size + 1)) out_.values[listed_name()] = std::move(value);
  }
  void list_opaque(std::string what) {
    if (what.size() > kMostText) what.resize(kMostText);
    if (!is_utf8(what)) what = json_quote(what);
    if (may_list(1)) out_.opaque[listed_name()] = std::move(what);
  }

  const Pickle& pickle_;
  TorchRebuild rebuild_;
  TorchOther out_;
  std::string path_;
  uint64_t visits_ = 0, most_visits_ = 0, name_bytes_ = 0, tensors_ = 0;
  size_t depth_ = 0, listed_ = 0, not_listed_ = 0;
};

}  // namespace

Result<TorchOther> walk_torch_objects(const Pickle& pickle, const TorchStorages& storages,
                                      const std::function<Status(const TorchTensor&)>& tensor) {
  return Walk(pickle, storages, tensor).run();
}

}  // namespace shardwright
