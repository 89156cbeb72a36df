#include "shardwright/format/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/format/pickle_writer.h"
#include "shardwright/format/torch_for_test.h"

namespace shardwright {
namespace {

using namespace testing_support;
using std::string_literals::operator""s;
using ::testing::HasSubstr;
using Value = PickleValue;

Result<Pickle> parse(const std::string& text, uint64_t values = 1'000'000) {
  static std::string kept;  // a pickle refers to its bytes
  kept = text;
  return Pickle::parse(view_of(kept), {values});
}

/// The value as Python would print it, for pickles without references in circles.
std::string shown(const Pickle& pickle, Value value) {
  auto list = [&](std::span<const Value> items) {
    std::string out;
    for (const auto& item : items) out += (out.empty() ? "" : ", ") + shown(pickle, item);
    return out;
  };
  switch (value.type) {
    case Value::kNone: return "None";
    case Value::kBool: return value.at != 0 ? "True" : "False";
    case Value::kInt: return std::to_string(value.integer());
    case Value::kFloat: return std::to_string(value.real());
    case Value::kText: return "'" + std::string(pickle.text(value)) + "'";
    case Value::kBytes: return "b'" + std::string(pickle.text(value)) + "'";
    case Value::kBigInt: return "big" + std::to_string(value.count);
    case Value::kGlobal: return std::string(pickle.global(value).module) + "." + std::string(pickle.global(value).name);
    case Value::kTuple: return "(" + list(pickle.items(value)) + ")";
    case Value::kList: return "[" + list(pickle.items(value)) + "]";
    case Value::kDict: return "{" + list(pickle.items(value)) + "}";
    case Value::kSet: return "set(" + list(pickle.items(value)) + ")";
    case Value::kPersistent: return "id" + shown(pickle, pickle.persistent(value));
    case Value::kCall: {
      const auto& call = pickle.call(value);
      return shown(pickle, call.callable) + shown(pickle, call.arguments) + "[" + list(call.items) + "]";
    }
  }
  return "?";
}

std::string shown(const std::string& body, char protocol = 2) {
  auto pickle = parse(pickled(body, protocol));
  return pickle.ok() ? shown(*pickle, pickle->root()) : pickle.error().text();
}

TEST(Pickle, ReadsEveryOpcodeOfData) {
  EXPECT_EQ(shown("N"), "None");
  EXPECT_EQ(shown("\x88"), "True");
  EXPECT_EQ(shown("K\xff"), "255");
  EXPECT_EQ(shown("M\xff\xff"), "65535");
  EXPECT_EQ(shown("J\xff\xff\xff\xff"), "-1");
  EXPECT_EQ(shown("\x8a\x00"s), "0");
  EXPECT_EQ(shown("\x8a\x01\xff"s), "-1");
  EXPECT_EQ(shown("\x8a\x02\xff\x00"s), "255");
  EXPECT_EQ(shown("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s), "9223372036854775807");
  EXPECT_EQ(shown("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s), "-9223372036854775808");
  EXPECT_EQ(shown("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"s), "big9");
  EXPECT_EQ(shown("\x8b\x01\x00\x00\x00\x05"s), "5");
  EXPECT_EQ(shown("G\x3f\xf8\x00\x00\x00\x00\x00\x00"s), "1.500000");
  EXPECT_EQ(shown(p_text("abc")), "'abc'");
  EXPECT_EQ(shown("\x8c\x01z"), "'z'");
  EXPECT_EQ(shown("\x8d\x01\x00\x00\x00\x00\x00\x00\x00z"s), "'z'");
  EXPECT_EQ(shown("U\x01z"), "'z'");
  EXPECT_EQ(shown("T\x01\x00\x00\x00z"s), "'z'");
  EXPECT_EQ(shown("C\x01z"), "b'z'");
  EXPECT_EQ(shown("B\x01\x00\x00\x00z"s), "b'z'");
  EXPECT_EQ(shown("\x8e\x01\x00\x00\x00\x00\x00\x00\x00z"s), "b'z'");
  EXPECT_EQ(shown(")"), "()");
  EXPECT_EQ(shown("K\x01\x85"), "(1)");
  EXPECT_EQ(shown("K\x01K\x02\x86"), "(1, 2)");
  EXPECT_EQ(shown("K\x01K\x02K\x03\x87"), "(1, 2, 3)");
  EXPECT_EQ(shown("(K\x01K\x02t"), "(1, 2)");
  EXPECT_EQ(shown("]K\x01"s + "a"), "[1]");
  EXPECT_EQ(shown("](K\x01K\x02"s + "e"), "[1, 2]");
  EXPECT_EQ(shown("}K\x01K\x02s"), "{1, 2}");
  EXPECT_EQ(shown("}(K\x01K\x02K\x03K\x04u"), "{1, 2, 3, 4}");
  EXPECT_EQ(shown("\x8f(K\x01\x90", 4), "set(1)");
  EXPECT_EQ(shown("(K\x01\x91", 4), "(1)");
  EXPECT_EQ(shown(p_global("torch", "Size") + "K\x02\x85\x85R"), "torch.Size((2))[]");
  EXPECT_EQ(shown(p_global("a", "B") + ")\x81}b"), "a.B()[]");
  EXPECT_EQ(shown(p_ordered_dict() + "(K\x01K\x02u"), "collections.OrderedDict()[1, 2]");
  EXPECT_EQ(shown("K\x07Q"), "id7");
  EXPECT_EQ(shown("\x95\x03\x00\x00\x00\x00\x00\x00\x00\x8c\x01"s + "a\x94\x8c\x01"s + "b\x94\x93", 4), "a.b");
  EXPECT_EQ(shown("K\x09q\x00"s + "h\x00\x86"s), "(9, 9)");
  EXPECT_EQ(shown("K\x09r\x01\x00\x00\x00j\x01\x00\x00\x00\x86"s), "(9, 9)");
}

TEST(Pickle, SaysHowManyBytesItTook) {
  auto pickle = parse(pickled("K\x01") + "garbage");
  ASSERT_OK(pickle);
  EXPECT_EQ(pickle->bytes_used(), 5u);
}

TEST(Pickle, SharedAndCircularValuesStayReferences) {
  auto circle = parse(pickled("]q\x00h\x00"s + "a"));
  ASSERT_OK(circle);
  EXPECT_EQ(circle->items(circle->root())[0].at, circle->root().at);
  std::string doubled = "]q\x00"s;
  for (char i = 0; i < 60; ++i) doubled += "(h"s + i + "h" + i + "tq" + static_cast<char>(i + 1);
  auto bomb = parse(pickled("(" + doubled + "t"));
  ASSERT_OK(bomb);
  EXPECT_LT(bomb->values(), 1000u);
}

struct Bad {
  std::string pickle, phrase;
  Code code = Code::kCorrupt;
};

TEST(Pickle, RefusesWhatIsNoPickleOfData) {
  constexpr Code kUnsupported = Code::kUnsupported;
  const Bad all[] = {
      {"", "ends too early"},
      {pickled("R"), "empty stack"},
      {pickled("K\x01t"), "no mark"},
      {pickled("(K\x01R"), "empty stack"},  // a mark is a floor
      {"\x80\x02K\x01", "ends too early"},
      {"\x80\x02.", "one value"},
      {pickled("K\x01K\x02"), "one value"},
      {pickled("(K\x01"), "one value"},
      {pickled("X\xff\xff\xff\x7f"s + "ab"), "ends too early"},
      {pickled("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s), "ends too early"},
      {pickled("\x8b\xff\xff\xff\xff"s), "ends too early"},
      {pickled("h\x09"), "not remembered"},
      {pickled("K\x01q\x05h\x04"), "not remembered"},
      {pickled("K\x01r\xff\xff\xff\xff"s), "far ahead"},
      {pickled(")K\x01"s + "a"), "what has none"},
      {pickled("\x8fK\x01K\x02s", 4), "what has none"},
      {pickled("]}b"), "what has none"},
      {pickled("}(K\x01u"), "key without"},
      {pickled("K\x01)R"), "not a global"},
      {pickled(p_global("a", "b") + "]R"), "no tuple"},
      {pickled("K\x01K\x02\x93", 4), "no texts"},
      {pickled("ca\nb"), "ends inside a name"},
      {"\x80\x06N.", "protocol 6", kUnsupported},
      {pickled("(X\x04\x00\x00\x00"s + "trueios\nsystem\n"), "opcode", kUnsupported},  // INST
      {pickled("(" + p_global("os", "system") + "o"), "opcode", kUnsupported},         // OBJ
      {pickled("\x82\x01"), "opcode", kUnsupported},                                   // EXT1
      {pickled(p_global("a", "b") + ")}\x92", 4), "opcode", kUnsupported},             // NEWOBJ_EX
      {pickled("K\x01\x32\x86"), "opcode", kUnsupported},                              // DUP
      {pickled("K\x01K\x02\x30"), "opcode", kUnsupported},                             // POP
      {pickled("Pfoo\n"), "opcode", kUnsupported},                                     // PERSID
      {pickled("\x96\x01\x00\x00\x00\x00\x00\x00\x00"s + "a", 5), "opcode", kUnsupported},
      {"Vabc\n.", "opcode", kUnsupported},
      {"I5\n.", "opcode", kUnsupported},
  };
  for (const auto& [pickle, phrase, code] : all) {
    auto parsed = parse(pickle);
    ASSERT_FALSE(parsed.ok()) << phrase << " " << testing::PrintToString(pickle);
    EXPECT_EQ(parsed.error().code, code) << parsed.error().text();
    EXPECT_THAT(parsed.error().text(), HasSubstr(phrase));
    EXPECT_NE(parsed.error().offset, kNoOffset);
  }
}

TEST(Pickle, HoldsNoMoreThanItMay) {
  EXPECT_CODE(parse(pickled(std::string(10'000, 'N')), 1000), Code::kUnsupported);
  EXPECT_CODE(parse(pickled(std::string(10'000, '(')), 1000), Code::kUnsupported);
  EXPECT_CODE(parse(pickled(std::string(10'000, '}')), 1000), Code::kUnsupported);
  EXPECT_OK(parse(pickled(")" + std::string(100'000, '\x85'))));  // deep, and no recursion of ours
}

TEST(PickleWriter, WritesWhatIsRead) {
  PickleWriter out;
  out.mark();
  for (int64_t value : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{65536}, int64_t{-1}, INT64_MAX, INT64_MIN})
    out.integer(value);
  out.boolean(true);
  const int64_t four[] = {1, 2, 3, 4};
  for (size_t count = 0; count <= 4; ++count) out.integers(std::span(four).first(count));
  out.constant("cpu");
  out.constant("cpu");
  out.global("a", "b");
  out.global("a", "b");
  out.empty_tuple();
  out.call();
  out.text("x");
  out.persistent();
  out.empty_dict();
  out.mark();
  out.text("k");
  out.integer(1);
  out.set_items();
  out.tuple();
  Bytes bytes = out.finish();
  auto pickle = Pickle::parse(bytes);
  ASSERT_OK(pickle);
  EXPECT_EQ(shown(*pickle, pickle->root()),
            "(0, 255, 256, 65536, -1, 9223372036854775807, -9223372036854775808, True, (), (1), (1, 2), (1, 2, 3), "
            "(1, 2, 3, 4), 'cpu', 'cpu', a.b, a.b()[], id'x', {'k', 1})");
  EXPECT_EQ(pickle->globals().size(), 1u);
}

}  // namespace
}  // namespace shardwright
