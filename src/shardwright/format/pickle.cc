#include "shardwright/format/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "shardwright/base/text.h"

namespace shardwright {
namespace {

/// Opcodes as Python's pickle module numbers them. Only those that are read.
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

constexpr uint8_t kHighestProtocol = 5;
/// Picklers number what they remember from 0 (or 1) on; a gap larger than this is a lie.
constexpr uint64_t kMemoGap = 64;
/// Of module and name together. A text is named anew by five bytes, and compared as a whole each time.
constexpr uint64_t kMaxGlobalBytes = 4 * KiB;

}  // namespace

/// Runs the opcodes over a stack of handles.
class PickleMachine {
 public:
  PickleMachine(View bytes, const PickleLimits& limits) : limits_(limits) { out_.bytes_ = bytes; }

  Result<Pickle> run() {
    while (!stopped_) {
      op_at_ = at_;
      SHARDWRIGHT_ASSIGN(auto op, number<uint8_t>());
      SHARDWRIGHT_TRY(step(op));
      if (out_.values_ + stack_.size() + memo_.size() > limits_.values)
        return fail(Code::kUnsupported, "pickle holds too many values")
            .at_offset(op_at_)
            .with_expected(fmt::format("at most {}", limits_.values));
    }
    out_.bytes_used_ = at_;
    return std::move(out_);
  }

 private:
  using Value = PickleValue;

  Error bad(std::string message) const {
    return fail(Code::kCorrupt, "pickle: " + std::move(message)).at_offset(op_at_);
  }

  // ---- bytes

  Result<View> take(uint64_t length) {
    if (length > out_.bytes_.size() - at_)
      return bad("ends too early")
          .with_found(format_bytes(out_.bytes_.size() - at_))
          .with_expected(format_bytes(length));
    View out = out_.bytes_.subspan(at_, length);
    at_ += length;
    return out;
  }
  template <class T>
  Result<T> number() {
    SHARDWRIGHT_ASSIGN(View raw, take(sizeof(T)));
    return load_le<T>(raw);
  }
  Result<std::string_view> line() {
    auto rest = text_of(out_.bytes_.subspan(at_));
    auto end = rest.find('\n');
    if (end == rest.npos) return bad("ends inside a name");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // ---- the stack

  Status push(Value value) {
    stack_.push_back(value);
    return {};
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Result<Value> pop() {
    if (stack_.size() <= floor()) return bad("takes a value from an empty stack");
    Value value = stack_.back();
    stack_.pop_back();
    return value;
  }
  /// The value below which the arguments lie, for opcodes that change it where it is.
  Result<Value> top() const {
    if (stack_.size() <= floor()) return bad("takes a value from an empty stack");
    return stack_.back();
  }
  /// Everything above the last mark, and the mark.
  Result<std::vector<Value>> pop_to_mark() {
    if (marks_.empty()) return bad("no mark on the stack");
    auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<Value> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }
  Result<std::vector<Value>> pop_some(size_t count) {
    std::vector<Value> values(count);
    for (size_t i = count; i-- > 0;) {
      SHARDWRIGHT_ASSIGN(values[i], pop());
    }
    return values;
  }

  // ---- values

  Status push_tuple(Result<std::vector<Value>> values) {
    if (!values.ok()) return std::move(values.error());
    Value tuple{Value::kTuple, static_cast<uint32_t>(values->size()), out_.tuples_.size()};
    out_.tuples_.insert(out_.tuples_.end(), values->begin(), values->end());
    out_.values_ += values->size();
    return push(tuple);
  }
  Status push_container(Value::Type type) {
    out_.containers_.emplace_back();
    out_.values_ += 2;
    return push({type, 0, out_.containers_.size() - 1});
  }
  template <class Length>
  Status push_text(Value::Type type) {
    SHARDWRIGHT_ASSIGN(auto length, number<Length>());
    uint64_t begin = at_;
    SHARDWRIGHT_TRY(take(length));
    if (length > UINT32_MAX) return bad("text of more than 4 GiB");
    return push({type, static_cast<uint32_t>(length), begin});
  }
  template <class Length>
  Status push_long() {
    SHARDWRIGHT_ASSIGN(auto length, number<Length>());
    uint64_t begin = at_;
    SHARDWRIGHT_ASSIGN(View raw, take(length));
    if (length > 8) return push({Value::kBigInt, static_cast<uint32_t>(length), begin});
    bool negative = !raw.empty() && (std::to_integer<int>(raw.back()) & 0x80) != 0;
    uint64_t value = negative ? ~0ull : 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      value &= ~(0xffull << (8 * i));
      value |= std::to_integer<uint64_t>(raw[i]) << (8 * i);
    }
    return push({Value::kInt, 0, value});
  }
  Status push_int(int64_t value) { return push({Value::kInt, 0, static_cast<uint64_t>(value)}); }
  Status push_float() {
    SHARDWRIGHT_ASSIGN(auto bits, number<uint64_t>());
    return push({Value::kFloat, 0, __builtin_bswap64(bits)});
  }
  Status push_global(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > kMaxGlobalBytes) return bad("name of a global is too long");
    auto [known, fresh] = global_ids_.try_emplace({module, name}, out_.globals_.size());
    if (fresh) {
      out_.globals_.push_back({module, name});
      out_.values_ += 4;
    }
    return push({Value::kGlobal, 0, known->second});
  }
  Status stack_global() {
    SHARDWRIGHT_ASSIGN(auto names, pop_some(2));
    if (!names[0].is(Value::kText) || !names[1].is(Value::kText)) return bad("names of a global are no texts");
    return push_global(out_.text(names[0]), out_.text(names[1]));
  }
  Status push_call() {
    SHARDWRIGHT_ASSIGN(auto parts, pop_some(2));
    if (!parts[0].is(Value::kGlobal)) return bad("calls what is not a global");
    if (!parts[1].is(Value::kTuple)) return bad("arguments of a call are no tuple");
    out_.calls_.push_back({parts[0], parts[1], {}, {}});
    out_.values_ += 5;
    return push({Value::kCall, 0, out_.calls_.size() - 1});
  }
  Status push_persistent() {
    SHARDWRIGHT_ASSIGN(Value id, pop());
    out_.persistent_.push_back(id);
    out_.values_ += 1;
    return push({Value::kPersistent, 0, out_.persistent_.size() - 1});
  }

  // ---- what fills a container

  Status add(Result<std::vector<Value>> values, Value::Type type, bool pairs) {
    if (!values.ok()) return std::move(values.error());
    SHARDWRIGHT_ASSIGN(Value target, top());
    bool is_object = target.is(Value::kCall) && type != Value::kSet;
    if (!target.is(type) && !is_object) return bad("adds elements to what has none");
    if (pairs && values->size() % 2 != 0) return bad("a key without a value");
    auto& items = is_object ? out_.calls_[target.at].items : out_.containers_[target.at];
    items.insert(items.end(), values->begin(), values->end());
    out_.values_ += values->size();
    return {};
  }
  Status build() {
    SHARDWRIGHT_ASSIGN(Value state, pop());
    SHARDWRIGHT_ASSIGN(Value target, top());
    if (!target.is(Value::kCall)) return bad("gives a state to what has none");
    out_.calls_[target.at].state = state;
    return {};
  }

  // ---- the memo

  Status put(uint64_t index) {
    SHARDWRIGHT_ASSIGN(Value value, top());
    if (index > memo_.size() + kMemoGap) return bad("remembers a value under a number far ahead");
    if (index >= memo_.size()) memo_.resize(index + 1);
    memo_[index] = value;
    return {};
  }
  Status get(uint64_t index) {
    if (index >= memo_.size() || !memo_[index]) return bad("asks for a value that was not remembered");
    return push(*memo_[index]);
  }

  // ---- opcodes, by what they do

  Status step(uint8_t op) {
    switch (op) {
      case kProto: {
        SHARDWRIGHT_ASSIGN(auto protocol, number<uint8_t>());
        if (protocol <= kHighestProtocol) return {};
        return fail(Code::kUnsupported, fmt::format("pickle of protocol {}", protocol)).at_offset(op_at_);
      }
      case kFrame:
        return number<uint64_t>().ok() ? Status{} : bad("ends too early");  // frames are hints for readers of streams
      case kStop: {
        if (stack_.size() != 1 || !marks_.empty()) return bad("ends with other than one value on the stack");
        out_.root_ = stack_.back();
        stopped_ = true;
        return {};
      }
      case kMark:
        marks_.push_back(stack_.size());
        out_.values_ += 1;
        return {};
      case kMemoize: return put(memo_.size());
      case kBinPut: return with<uint8_t>([&](auto index) { return put(index); });
      case kLongBinPut: return with<uint32_t>([&](auto index) { return put(index); });
      case kBinGet: return with<uint8_t>([&](auto index) { return get(index); });
      case kLongBinGet: return with<uint32_t>([&](auto index) { return get(index); });
      default: return scalar(op);
    }
  }

  template <class T, class Use>
  Status with(Use use) {
    SHARDWRIGHT_ASSIGN(T value, number<T>());
    return use(value);
  }

  Status scalar(uint8_t op) {
    switch (op) {
      case kNone: return push({});
      case kNewTrue:
      case kNewFalse: return push({Value::kBool, 0, op == kNewTrue ? 1u : 0u});
      case kBinInt: return with<int32_t>([&](auto value) { return push_int(value); });
      case kBinInt1: return with<uint8_t>([&](auto value) { return push_int(value); });
      case kBinInt2: return with<uint16_t>([&](auto value) { return push_int(value); });
      case kLong1: return push_long<uint8_t>();
      case kLong4: return push_long<uint32_t>();
      case kBinFloat: return push_float();
      case kShortBinUnicode:
      case kShortBinString:  // of Python 2, where it is what a text is
        return push_text<uint8_t>(Value::kText);
      case kBinUnicode:
      case kBinString: return push_text<uint32_t>(Value::kText);
      case kBinUnicode8: return push_text<uint64_t>(Value::kText);
      case kShortBinBytes: return push_text<uint8_t>(Value::kBytes);
      case kBinBytes: return push_text<uint32_t>(Value::kBytes);
      case kBinBytes8: return push_text<uint64_t>(Value::kBytes);
      default: return container(op);
    }
  }

  Status container(uint8_t op) {
    switch (op) {
      case kEmptyTuple: return push_tuple(std::vector<Value>{});
      case kTuple1:
      case kTuple2:
      case kTuple3: return push_tuple(pop_some(op - kTuple1 + 1u));
      case kTuple:
      case kFrozenSet: return push_tuple(pop_to_mark());
      case kEmptyList: return push_container(Value::kList);
      case kEmptyDict: return push_container(Value::kDict);
      case kEmptySet: return push_container(Value::kSet);
      case kAppend: return add(pop_some(1), Value::kList, false);
      case kAppends: return add(pop_to_mark(), Value::kList, false);
      case kAddItems: return add(pop_to_mark(), Value::kSet, false);
      case kSetItem: return add(pop_some(2), Value::kDict, true);
      case kSetItems: return add(pop_to_mark(), Value::kDict, true);
      default: return object(op);
    }
  }

  Status object(uint8_t op) {
    switch (op) {
      case kGlobal: {
        SHARDWRIGHT_ASSIGN(auto module, line());
        SHARDWRIGHT_ASSIGN(auto name, line());
        return push_global(module, name);
      }
      case kStackGlobal: return stack_global();
      case kReduce:
      case kNewObj: return push_call();
      case kBuild: return build();
      case kBinPersId: return push_persistent();
      default: {
        bool printable = op > ' ' && op < 0x7f;
        return fail(Code::kUnsupported, "pickle: an opcode that pickles of data have no use for")
            .at_offset(op_at_)
            .with_found(printable ? fmt::format("'{}'", static_cast<char>(op)) : fmt::format("0x{:02x}", op))
            .with_expected("protocol 2 to 5");
      }
    }
  }

  PickleLimits limits_;
  Pickle out_;
  uint64_t at_ = 0, op_at_ = 0;
  bool stopped_ = false;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  std::vector<std::optional<Value>> memo_;
  std::map<std::pair<std::string_view, std::string_view>, uint64_t> global_ids_;
};

Result<Pickle> Pickle::parse(View bytes, const PickleLimits& limits) { return PickleMachine(bytes, limits).run(); }

}  // namespace shardwright
