#include "shardwright/base/json.h"

#include <algorithm>
#include <iterator>

#include "shardwright/base/json_sax.h"

namespace shardwright {
namespace {

/// Builds the document from events. Members are collected in plain vectors first: ordered_json looks for each new key one by one, and
/// copies all values when it grows.
class Builder {
 public:
  Builder(std::string_view text, const char* const* cursor) : text_(text), cursor_(cursor) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // no JSON text has it
  bool start_object(size_t) { return open(true); }
  bool start_array(size_t) { return open(false); }
  bool key(std::string& name) {
    stack_.back().members.emplace_back(std::move(name), Json());
    stack_.back().key_ends.push_back(offset());
    return true;
  }
  bool end_array() {
    Json::array_t items = std::move(stack_.back().items);
    stack_.pop_back();
    return add(std::move(items));
  }
  bool end_object() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    if (!check_keys(frame)) return false;
    Json::object_t object;
    object.reserve(frame.members.size());
    for (auto& [name, value] : frame.members) object.emplace_back(std::move(name), std::move(value));
    return add(std::move(object));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    fail_at(std::min<uint64_t>(position > 0 ? position - 1 : 0, text_.size()),
            "not valid JSON: " + detail::cause_of(problem));
    return false;
  }

  Json& document() { return document_; }
  Error& error() { return error_; }

 private:
  struct Frame {
    bool is_object;
    std::vector<std::pair<std::string, Json>> members{};
    std::vector<uint64_t> key_ends{};  ///< byte offset just past each member's key
    Json::array_t items{};
  };

  uint64_t offset() const { return static_cast<uint64_t>(*cursor_ - text_.data()); }
  void fail_at(uint64_t where, std::string message) {
    error_ = fail(Code::kCorrupt, std::move(message)).at_offset(where);
  }
  bool open(bool is_object) {
    if (stack_.size() == detail::kMaxJsonDepth) {
      fail_at(offset() - 1, "JSON is nested deeper than " + std::to_string(detail::kMaxJsonDepth) + " levels");
      return false;
    }
    stack_.push_back({is_object});
    return true;
  }
  template <class Value>
  bool add(Value&& value) {
    if (stack_.empty()) {
      document_ = std::forward<Value>(value);
    } else if (stack_.back().is_object) {
      stack_.back().members.back().second = std::forward<Value>(value);
    } else {
      stack_.back().items.emplace_back(std::forward<Value>(value));
    }
    return true;
  }
  bool check_keys(const Frame& frame) {
    std::vector<size_t> order(frame.members.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    auto name = [&](size_t i) -> const std::string& { return frame.members[i].first; };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      int sign = name(a).compare(name(b));
      return sign != 0 ? sign < 0 : a < b;
    });
    auto twin = std::adjacent_find(order.begin(), order.end(), [&](size_t a, size_t b) { return name(a) == name(b); });
    if (twin == order.end()) return true;
    fail_at(key_start(frame.key_ends[twin[1]]), "JSON object has the key " + json_quote(name(*twin)) + " twice");
    return false;
  }
  /// Offset of the opening quote of the key that ends before `end`: the next quote backwards that no backslash escapes.
  uint64_t key_start(uint64_t end) const {
    size_t at = end - 1;
    while (at > 0) {
      at = text_.rfind('"', at - 1);
      size_t slashes = 0;
      while (slashes < at && text_[at - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) break;
    }
    return at;
  }

  std::string_view text_;
  const char* const* cursor_;
  std::vector<Frame> stack_;
  Json document_;
  Error error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text) {
  // The parser takes a NUL for the end of the text and would ignore what follows.
  if (size_t nul = text.find('\0'); nul != std::string_view::npos)
    return fail(Code::kCorrupt, "not valid JSON: NUL byte").at_offset(nul);
  const char* cursor = text.data();
  Builder builder(text, &cursor);
  if (!detail::sax_parse(text, &cursor, &builder)) return std::move(builder.error());
  return std::move(builder.document());
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

const Json& json_member(const Json& object, std::string_view key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  auto at = object.find(key);
  return at == object.end() ? kNull : *at;
}

}  // namespace shardwright
