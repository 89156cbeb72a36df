// Pickles that lie: every case of the list in docs/formats/torch.md, with our verdict.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardwright/format/torch_for_test.h"

namespace shardwright {
namespace {

using namespace testing_support;
using std::string_literals::operator""s;
using ::testing::HasSubstr;

const std::string kGood = p_tensor("FloatStorage", "0", 6, 0, {2, 3}, {3, 1});

Result<Catalog> open_bytes(const std::string& file, const std::string& name = "x.pt") {
  TemporaryDirectory directory;
  write_file(directory.at(name), file);
  auto store = open_file_store(directory.path());
  return kTorch.open(**store, name, {});
}
Result<Catalog> open_pickle(const std::string& body, char protocol = 2) {
  return open_bytes(torch_file(pickled(body, protocol)));
}

struct Case {
  std::string name, body, phrase;
  Code code = Code::kCorrupt;
};

void expect_refused(const Result<Catalog>& opened, const Case& wanted) {
  ASSERT_FALSE(opened.ok()) << wanted.name;
  EXPECT_EQ(opened.error().code, wanted.code) << wanted.name << ": " << opened.error().text();
  EXPECT_THAT(opened.error().text(), HasSubstr(wanted.phrase)) << wanted.name;
  EXPECT_THAT(opened.error().path, HasSubstr("x.pt")) << wanted.name;
}

TEST(TorchHostile, CodeIsRefusedByName) {
  auto call = [](std::string_view module, std::string_view name) {
    return p_global(module, name) + p_tuple({p_text("true")}) + "R";
  };
  for (const auto& body :
       {call("os", "system"), call("posix", "system"), call("nt", "system"), call("builtins", "eval"),
        call("__builtin__", "eval"), call("builtins", "getattr"), call("builtins", "exec"), call("subprocess", "Popen"),
        call("os.path", "join"), call("torch", "load"), call("numpy", "load"), call("runpy", "_run_code"),
        // Only named, and deep inside what is otherwise fine.
        "}(" + p_text("a") + kGood + p_text("b") + p_global("os", "system") + "u"})
    expect_refused(open_pickle(body), {"code", "", "names code to be run"});
  expect_refused(open_pickle(p_text("os") + p_text("system") + "\x93)R", 4), {"stack global", "", "names code"});
}

TEST(TorchHostile, ForeignObjectsAreNamedAndLeftOut) {
  auto opened = open_pickle("}(" + p_text("model") + p_global("__main__", "Net") + ")\x81}" + p_text("w") + kGood +
                            "sb" + p_text("w") + kGood + "u");
  ASSERT_OK(opened);
  EXPECT_EQ(opened->size(), 1u);
  EXPECT_EQ(opened->value("opaque")->data, R"({"model":"__main__.Net"})");
}

TEST(TorchHostile, StoragesAndTheirIds) {
  auto with_id = [](const std::string& id) {
    return p_global("torch._utils", "_rebuild_tensor_v2") +
           p_tuple({id, p_int(0), p_ints({2, 3}), p_ints({3, 1}), "\x89", p_ordered_dict()}) + "R";
  };
  const Case all[] = {
      {"text", with_id(p_text("storage") + "Q"), "persistent id"},
      {"other kind", with_id(p_tuple({p_text("thing"), "N"}) + "Q"), "persistent id"},
      {"no storage", with_id(p_int(5)), "no storage"},
      {"module", with_id(p_tuple({p_text("module"), "N"}) + "Q"), "no storage"},
      {"foreign class",
       with_id(p_tuple({p_text("storage"), p_global("evil", "FloatStorage"), p_text("0"), p_text("cpu"), p_int(6)}) +
               "Q"),
       "persistent id"},
      {"key leaves", p_tensor("FloatStorage", "../data/0", 6, 0, {2, 3}, {3, 1}), "key of a storage"},
      {"key empty", p_tensor("FloatStorage", "", 6, 0, {2, 3}, {3, 1}), "key of a storage"},
      {"no such key", p_tensor("FloatStorage", "7", 6, 0, {2, 3}, {3, 1}), "no record 'data/7'"},
      {"negative", p_tensor("FloatStorage", "0", -6, 0, {2, 3}, {3, 1}), "negative size"},
      {"huge", p_tensor("DoubleStorage", "0", INT64_MAX, 0, {2}, {1}), "impossible size"},
      {"longer than its record", p_tensor("FloatStorage", "0", int64_t{1} << 50, 0, {2}, {1}), "not as long"},
      {"shorter than its record", p_tensor("FloatStorage", "0", 5, 0, {2}, {1}), "not as long"},
      {"two sizes", "](" + kGood + p_tensor("FloatStorage", "0", 3, 0, {3}, {1}) + "e", "two sizes"},
      {"view",
       with_id(p_tuple({p_text("storage"), p_global("torch", "FloatStorage"), p_text("0"), p_text("cpu"), p_int(6),
                        p_tuple({p_text("1"), p_int(0), p_int(3)})}) +
               "Q"),
       "view of another", Code::kUnsupported},
  };
  for (const auto& one : all) expect_refused(open_pickle(one.body), one);
  // The same bytes as two types are one storage, and a device is only where it once was.
  EXPECT_OK(open_pickle("](" + kGood + p_tensor("IntStorage", "0", 6, 0, {6}, {1}) + "e"));
  EXPECT_OK(open_pickle(with_id(
      p_tuple({p_text("storage"), p_global("torch.cuda", "FloatStorage"), p_text("0"), p_text("cuda:0"), p_int(6)}) +
      "Q")));
}

TEST(TorchHostile, StridesStayInside) {
  struct Shape {
    int64_t offset;
    std::vector<int64_t> size, stride;
    std::string phrase;
    Code code = Code::kCorrupt;
  };
  constexpr int64_t kHuge = INT64_MAX;
  const Shape all[] = {
      {0, {2, 3}, {300, 1}, "beyond its storage"},
      {-1, {2, 3}, {3, 1}, "offset of a tensor"},
      {0, {2, 3}, {-3, 1}, "negative size or stride"},
      {0, {-2, 3}, {3, 1}, "negative size or stride"},
      {0, {7}, {1}, "beyond its storage"},
      {1, {2, 3}, {3, 1}, "beyond its storage"},
      {100, {2, 3}, {3, 1}, "beyond its storage"},
      {kHuge, {2, 3}, {3, 1}, "beyond its storage"},
      {0, {2, 3}, {1}, "differ in their dimensions"},
      {0, {kHuge, kHuge}, {kHuge, kHuge}, "beyond its storage"},
      {0, {int64_t{1} << 40}, {1}, "beyond its storage"},
      {0, {int64_t{1} << 40}, {0}, "repeats the elements", Code::kUnsupported},
      {0, {int64_t{1} << 40, int64_t{1} << 40}, {0, 0}, "repeats the elements", Code::kUnsupported},
  };
  for (const auto& [offset, size, stride, phrase, code] : all)
    expect_refused(open_pickle(p_tensor("FloatStorage", "0", 6, offset, size, stride)), {"", "", phrase, code});
  EXPECT_OK(open_pickle(p_tensor("FloatStorage", "0", 6, 5, {1}, {1})));
  EXPECT_OK(open_pickle(p_tensor("FloatStorage", "0", 6, 0, {1, 6}, {77, 1})));
  EXPECT_OK(open_pickle(p_tensor("FloatStorage", "0", 6, 0, {1000}, {0})));
  EXPECT_OK(open_pickle(p_tensor("FloatStorage", "0", 6, kHuge, {0, 5}, {1, 1})));
}

TEST(TorchHostile, TreesThatNeverEnd) {
  std::string deep = ")" + std::string(100'000, '\x85');
  expect_refused(open_pickle(deep), {"deep", "", "nested too deep"});
  // Nothing to name: a plain list is a value of its own. With something in it, every way to it is a name.
  std::string bomb = "}" + p_text("x") + kGood + "sq\x00"s;
  for (char i = 0; i < 40; ++i) {
    std::string get = "h"s + i;
    bomb += "(" + get + get + "tq" + static_cast<char>(i + 1);
  }
  expect_refused(open_pickle("(" + bomb + "t"), {"bomb", "", "would never end"});
  expect_refused(open_pickle("]q\x00h\x00"s + "a"), {"circle", "", "nested too deep"});
  expect_refused(open_pickle("}q\x00"s + p_text("a") + "h\x00"s + "s"), {"circle", "", "nested too deep"});
  std::string wrapped = kGood;
  for (int i = 0; i < 50; ++i)
    wrapped = p_global("torch._utils", "_rebuild_parameter") + p_tuple({wrapped, "\x89", p_ordered_dict()}) + "R";
  expect_refused(open_pickle(wrapped), {"wrapped", "", "wrapped too many times"});
}

/// Little that is referred to again and again: what is done for each time is bounded by the pickle's size.
TEST(TorchHostile, SmallFilesThatWouldCostMuch) {
  auto again = [](const std::string& once, size_t times) {
    std::string body = "](" + once + "q\x00"s;
    for (size_t i = 0; i < times; ++i) body += "h\x00"s;
    return body + "e";
  };
  std::string numbers = "](", pairs = "}(", ones = "(";
  for (int i = 0; i < 50'000; ++i) numbers += "K\1", pairs += "NN";
  for (int i = 0; i < 65; ++i) ones += "K\1";
  expect_refused(open_pickle(again(numbers + "e", 50'000)), {"numbers", "", "would never end"});
  expect_refused(open_pickle(again(pairs + "u", 50'000)), {"pairs", "", "would never end"});
  auto shape = p_global("torch._utils", "_rebuild_tensor") + "(" + p_storage("FloatStorage", "0", 6) + "K" + '\0' +
               ones + "tq\x01h\x01tR"s;
  expect_refused(open_pickle(shape), {"dimensions", "", "too many dimensions", Code::kUnsupported});
  expect_refused(open_pickle(p_text(std::string(5000, 'm')) + "q\x00h\x00\x93"s, 4), {"name", "", "too long"});
  expect_refused(open_pickle(p_tensor("FloatStorage", std::string(101, '0'), 6, 0, {6}, {1})),
                 {"key", "", "key of a storage"});
}

TEST(TorchHostile, NamesAreGivenOnce) {
  expect_refused(open_pickle("}(" + p_text("a") + kGood + p_text("a") + kGood + "u"), {"twice", "", "this name"});
  // {"a": {"b": t}, "a.b": t}
  expect_refused(open_pickle("}(" + p_text("a") + "}" + p_text("b") + kGood + "s" + p_text("a.b") + kGood + "u"),
                 {"joined", "", "this name"});
}

TEST(TorchHostile, CallsWithOtherArguments) {
  auto call = [](std::string_view name, const std::vector<std::string>& arguments) {
    return p_global("torch._utils", name) + p_tuple(arguments) + "R";
  };
  auto storage = p_storage("FloatStorage", "0", 6);
  auto indices = p_tensor("FloatStorage", "0", 6, 0, {3}, {1});
  const Case all[] = {
      {"too few", call("_rebuild_tensor_v2", {storage}), "too few arguments"},
      {"size", call("_rebuild_tensor", {storage, p_int(0), p_text("23"), p_ints({3, 1})}), "no tuple of integers"},
      {"size of texts", call("_rebuild_tensor", {storage, p_int(0), p_tuple({p_text("2")}), p_ints({1})}), "no tuple"},
      {"no scale", call("_rebuild_qtensor", {storage, p_int(0), p_ints({6}), p_ints({1}), p_tuple({}), "\x89"}),
       "without its scale"},
      {"axis",
       call("_rebuild_qtensor",
            {storage, p_int(0), p_ints({6}), p_ints({1}),
             p_tuple({p_global("torch", "per_channel_affine"), indices, indices, p_int(1)}), "\x89"}),
       "none of its dimensions"},
      {"scales",
       call("_rebuild_qtensor",
            {storage, p_int(0), p_ints({6}), p_ints({1}),
             p_tuple({p_global("torch", "per_channel_affine"), indices, indices, p_int(0)}), "\x89"}),
       "not one a channel"},
      {"sparse",
       call("_rebuild_sparse_tensor",
            {p_global("torch.serialization", "_get_layout") + p_tuple({p_text("torch.sparse_coo")}) + "R",
             p_tuple({indices})}),
       "without all of its parts"},
  };
  for (const auto& one : all) expect_refused(open_pickle(one.body), one);
}

TEST(TorchHostile, ArchivesThatAreNone) {
  auto pickle = pickled(kGood);
  std::string floats(24, 'f');
  const Case all[] = {
      {"no version", zip_of({{"data.pkl", pickle}, {"data/0", floats}}), "no record 'version'"},
      {"version 0", zip_of({{"data.pkl", pickle}, {"data/0", floats}, {"version", "0"}}), "another version",
       Code::kUnsupported},
      {"version 11", zip_of({{"data.pkl", pickle}, {"data/0", floats}, {"version", "11\n"}}), "another version",
       Code::kUnsupported},
      {"version of words", zip_of({{"data.pkl", pickle}, {"data/0", floats}, {"version", "three"}}), "another version",
       Code::kUnsupported},
      {"long version", zip_of({{"data.pkl", pickle}, {"version", std::string(100, '3')}}), "too long"},
      {"no pickle", zip_of({{"data/0", floats}, {"version", "3"}}), "no record 'data.pkl'"},
      {"no folder", zip_of({{"data.pkl", pickle}, {"data/0", floats}, {"version", "3"}}, ""), "none of torch.save"},
      {"leaves", zip_of({{"data.pkl", pickle}, {"data/0", floats}, {"version", "3"}, {"../x", "x"}}), "another folder"},
      {"byte order", zip_of({{"data.pkl", pickle}, {"data/0", floats}, {"version", "3"}, {"byteorder", "middle"}}),
       "neither little nor big"},
      {"short record", zip_of({{"data.pkl", pickle}, {"data/0", floats.substr(8)}, {"version", "3"}}), "not as long"},
      {"script", zip_of({{"data.pkl", pickle}, {"constants.pkl", pickle}, {"version", "3"}}), "TorchScript",
       Code::kUnsupported},
      {"truncated", torch_file(pickle).substr(0, 300), "no end record"},
      {"tar", std::string(257, 's') + "ustar" + std::string(300, 't'), "a tar archive", Code::kUnsupported},
      {"other pickle", pickled("}"), "not one of torch.save", Code::kUnsupported},
  };
  for (const auto& one : all) expect_refused(open_bytes(one.body), one);
  auto flipped = torch_file(pickle);
  flipped[flipped.find("_rebuild_tensor_v2") + 16] = 'w';
  expect_refused(open_bytes(flipped), {"flipped", "", "checksum"});
  // Nothing of the file's own decides how much is allocated.
  EXPECT_OK(open_pickle("}" + p_text("meta") + p_global("torch._utils", "_rebuild_meta_tensor_no_storage") +
                        p_tuple({p_global("torch", "float32"), p_ints({int64_t{1} << 40}), p_ints({1}), "\x89"}) +
                        "Rs"));
}

TEST(TorchHostile, NoPartOfAFileIsTakenForTheWhole) {
  for (const char* name : {"basic_statedict", "legacy_nonzip"}) {
    auto whole = read_file(std::string(SHARDWRIGHT_TEST_DATA) + "/torch/" + name + ".pt");
    ASSERT_OK(open_bytes(whole));
    for (size_t size = 0; size < whole.size(); size += 23) EXPECT_FALSE(open_bytes(whole.substr(0, size)).ok()) << size;
    EXPECT_FALSE(open_bytes(whole.substr(0, whole.size() - 1)).ok());
  }
}

TEST(TorchHostile, TheFormBeforeZip) {
  std::string head = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s + pickled("M\xe9\x03") +
                     pickled("}" + p_text("little_endian") + "\x88s");
  std::string floats(24, 'f');
  auto object = pickled(kGood), keys = pickled("]" + p_text("0") + "a");
  EXPECT_OK(open_bytes(head + object + keys + le(uint64_t{6}) + floats));
  const Case all[] = {
      {"another count", head + object + keys + le(uint64_t{7}) + floats, "not as long as the pickle says"},
      {"cut off", head + object + keys + le(uint64_t{6}) + floats.substr(1), "file ends inside storage"},
      {"cut in the pickle", head + object.substr(0, 40), "ends"},
      {"no keys", head + object + pickled("]") + le(uint64_t{6}) + floats, "list of storages"},
      {"key twice", head + object + pickled("](" + p_text("0") + p_text("0") + "e"), "list of storages"},
      {"other key", head + object + pickled("]" + p_text("1") + "a") + le(uint64_t{6}) + floats, "list of storages"},
      {"big-endian", head.substr(0, head.size() - 3) + "\x89s." + object + keys, "big-endian", Code::kUnsupported},
      {"other version", head.substr(0, 15) + pickled("M\xea\x03"), "another version", Code::kUnsupported},
  };
  for (const auto& one : all) expect_refused(open_bytes(one.body), one);
}

}  // namespace
}  // namespace shardwright
