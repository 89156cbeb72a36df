#include <gtest/gtest.h>

#include <map>

#include "shardwright/format/draft_suite.h"
#include "shardwright/format/offload_index.h"
#include "shardwright/format/safetensors_for_test.h"

namespace shardwright {
namespace {

using namespace testing_support;

std::unique_ptr<Store> store_with(const std::map<std::string, std::string>& files) {
  auto store = open_memory_store();
  auto transaction = store->begin("");
  EXPECT_TRUE(transaction.ok());
  Publication publication;
  for (const auto& [key, text] : files) {
    EXPECT_TRUE(write_object(**transaction, key, bytes_of(text)).ok());
    publication.keys.push_back(key);
  }
  EXPECT_TRUE((*transaction)->commit(publication).ok());
  return store;
}

TEST(OffloadFormat, ReadsFilesAndPointers) {
  auto store = store_with({
      {"index.json", R"({"a": {"dtype": "float32", "shape": [2, 3]}, "scalar": {"dtype": "int64", "shape": []},
        "none": {"dtype": "bfloat16", "shape": [0, 4]}, "e4m3": {"dtype": "float8_e4m3fn", "shape": [5]},
        "w": {"safetensors_file": "m.safetensors", "weight_name": "stored", "dtype": "float32"},
        "same": {"safetensors_file": "m.safetensors", "weight_name": "stored", "dtype": "float32"},
        "raw": {"safetensors_file": "m.safetensors", "weight_name": "stored"},
        "x": {"safetensors_file": "m.safetensors", "unknown": [1, {}], "dtype": null}})"},
      {"a.dat", std::string(24, 'a')},
      {"scalar.dat", std::string(8, 's')},
      {"none.dat", std::string(1, '\0')},
      {"e4m3.dat", std::string(5, '8')},
      {"m.safetensors",
       safetensors_file(R"({"stored":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"x":{"dtype":"U8","shape":[1],)"
                        R"("data_offsets":[4,5]}})",
                        "wwwwx")},
  });
  EXPECT_EQ(sniff_format(*store, ""), &kOffload);
  EXPECT_EQ(sniff_format(*store, "index.json"), &kOffload);
  auto catalog = kOffload.open(*store, "", {});
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  std::vector<std::string> expected = {"a F32 [2, 3] a.dat@0+24",          "scalar I64 [] scalar.dat@0+8",
                                       "none BF16 [0, 4] none.dat@0+0",    "e4m3 F8_E4M3 [5] e4m3.dat@0+5",
                                       "w F32 [2] m.safetensors@120+4",    "same F32 [2] = w",
                                       "raw BF16 [2] m.safetensors@120+4", "x U8 [1] m.safetensors@124+1"};
  EXPECT_EQ(lines_of(*catalog), expected);
  EXPECT_EQ(catalog->flat(*catalog->find("w"))->stored, DType::kBF16) << "readers cast";
  EXPECT_EQ(kOffload.members(*store, ""),
            (std::vector<std::string>{"index.json", "a.dat", "scalar.dat", "none.dat", "e4m3.dat"}))
      << "never the file that is pointed into";
}

TEST(OffloadFormat, AModelOfTheStandardNameGoesBefore) {
  auto store = store_with({{"index.json", R"({"a": {"dtype": "uint8", "shape": [1]}})"},
                           {"a.dat", "a"},
                           {"model.safetensors", safetensors_file("{" + u8_tensor("m", 1) + "}", "m")}});
  EXPECT_EQ(sniff_format(*store, ""), &kSafetensors);
  EXPECT_EQ(sniff_format(*store, "index.json"), &kOffload);
}

struct Lie {
  const char* name;
  std::string index;
  const char* phrase;
  Code code = Code::kCorrupt;
};

std::string entry(const std::string& inside) { return R"({"a": {)" + inside + "}}"; }
std::string pointer(const std::string& file, const std::string& more = "") {
  return entry(R"("safetensors_file": ")" + file + "\"" + more);
}

TEST(OffloadFormat, OneLieEach) {
  const std::vector<Lie> lies = {
      {"no object", "[1]", "index is not an object"},
      {"cut off", R"({"a": {"dtype": "uint8", "sha)", "JSON"},
      {"entry is a number", R"({"a": 1})", "entry is not an object"},
      {"name twice", R"({"a": {"dtype": "uint8", "shape": [1]}, "a": {"dtype": "uint8", "shape": [1]}})", "a"},
      {"no dtype", entry(R"("shape": [1])"), "no dtype"},
      {"dtype is a number", entry(R"("dtype": 1, "shape": [1])"), "dtype is no text"},
      {"dtype unknown", entry(R"("dtype": "complex256", "shape": [1])"), "no such dtype", Code::kUnsupported},
      {"dtype of safetensors", entry(R"("dtype": "F32", "shape": [1])"), "no such dtype", Code::kUnsupported},
      {"no shape", entry(R"("dtype": "uint8")"), "no shape"},
      {"negative", entry(R"("dtype": "uint8", "shape": [-1])"), "whole number"},
      {"fraction", entry(R"("dtype": "uint8", "shape": [1.0])"), "whole number"},
      {"too large for a sign", entry(R"("dtype": "uint8", "shape": [18446744073709551615])"), "whole number"},
      {"bomb", entry(R"("dtype": "uint8", "shape": [4611686018427387904])"), "shorter than the index says"},
      {"overflow", entry(R"("dtype": "int64", "shape": [4294967296, 4294967296, 4])"), "shorter than the index says"},
      {"too short", entry(R"("dtype": "float32", "shape": [3])"), "found 9 bytes, expected 12 bytes for [3] of F32"},
      {"leads out", R"({"../a": {"dtype": "uint8", "shape": [1]}})", "leads out of the folder"},
      {"absolute", R"({"/etc/a": {"dtype": "uint8", "shape": [1]}})", "leads out of the folder"},
      {"no file", R"({"b": {"dtype": "uint8", "shape": [1]}})", "file is missing", Code::kNotFound},
      {"pointer is a number", entry(R"("safetensors_file": 1)"), "no text"},
      {"pointer to nothing", pointer("b.safetensors"), "no", Code::kUnsupported},
      {"pointer to no safetensors", pointer("text.safetensors"), "safetensors"},
      {"pointer to no such tensor", pointer("m.safetensors"), "no such tensor", Code::kNotFound},
      {"pointer with a NUL", pointer("m\\u0000.safetensors"), "NUL"},
      {"cast of integers", pointer("m.safetensors", R"(, "weight_name": "m", "dtype": "float32")"), "cast",
       Code::kUnsupported},
  };
  for (const Lie& lie : lies) {
    auto store = store_with({{"index.json", lie.index},
                             {"a.dat", "123456789"},
                             {"text.safetensors", "<!DOCTYPE html><html></html>"},
                             {"m.safetensors", safetensors_file("{" + u8_tensor("m", 1) + "}", "m")}});
    auto catalog = kOffload.open(*store, "", {});
    ASSERT_FALSE(catalog.ok()) << lie.name;
    EXPECT_EQ(catalog.error().code, lie.code) << lie.name << ": " << catalog.error().text();
    EXPECT_NE(catalog.error().text().find(lie.phrase), std::string::npos) << lie.name << ": " << catalog.error().text();
    EXPECT_FALSE(catalog.error().path.empty()) << lie.name;
    std::vector<Error> findings;
    OpenOptions verify;
    verify.findings = &findings;
    auto again = kOffload.open(*store, "", verify);
    EXPECT_TRUE(!again.ok() || findings.size() == 1) << lie.name;
  }
}

TEST(OffloadFormat, WritesAsAccelerateDoes) {
  CatalogBuilder builder;
  auto add = [&](std::string_view name, DType dtype, std::vector<int64_t> shape) {
    return *builder.add_tensor(name, dtype, shape);
  };
  add("a.weight", DType::kBF16, {2, 3});
  TensorId kept = add("caf\xC3\xA9", DType::kF8E5M2, {});
  add("none", DType::kI64, {0});
  builder.tie(add("again", DType::kF8E5M2, {}), kept);
  builder.set_value("metadata", {Value::kJson, R"({"format":"pt"})"});
  auto draft = kOffload.draft(*builder.build(true), {});
  ASSERT_TRUE(draft.ok()) << draft.error().text();
  auto files = testing::materialise(**draft, [](TensorId id) { return testing::pattern(id, id == 0 ? 12 : 1); });
  // json.dump(index, file, indent=2)
  EXPECT_EQ(text_of(files.at("index.json")), R"({
  "a.weight": {
    "dtype": "bfloat16",
    "shape": [
      2,
      3
    ]
  },
  "caf\u00e9": {
    "dtype": "float8_e5m2",
    "shape": []
  },
  "none": {
    "dtype": "int64",
    "shape": [
      0
    ]
  },
  "again": {
    "dtype": "float8_e5m2",
    "shape": []
  }
})");
  EXPECT_EQ(files.at("a.weight.dat").size(), 12u);
  EXPECT_EQ(files.at("none.dat"), Bytes(1)) << "NumPy cannot map an empty file";
  EXPECT_EQ(files.size(), 5u);
  EXPECT_EQ((*draft)->warnings().size(), 2u) << "metadata and the tie are lost";
}

TEST(OffloadFormat, RefusesWhatLoadersCouldNotFind) {
  auto refused = [](std::string_view name, DType dtype) {
    CatalogBuilder builder;
    EXPECT_TRUE(builder.add_tensor(name, dtype, std::vector<int64_t>{4}).ok());
    auto draft = kOffload.draft(*builder.build(true), {});
    return !draft.ok() && draft.error().code == Code::kUnsupported && draft.error().tensor == name;
  };
  EXPECT_TRUE(refused("a/b", DType::kU8));
  EXPECT_TRUE(refused("..", DType::kU8));
  EXPECT_TRUE(refused("", DType::kU8));
  EXPECT_TRUE(refused("w", DType::kF4));
  EXPECT_FALSE(refused("w", DType::kU8));
}

TEST(OffloadFormat, PointersLeadAnywhere) {
  TemporaryDirectory folder, elsewhere;
  std::string model = elsewhere.at("m.safetensors");
  write_file(model, safetensors_file("{" + u8_tensor("m", 3) + "}", "abc"));
  write_file(folder.at("index.json"), R"({"w": {"safetensors_file": ")" + model + R"(", "weight_name": "m"}})");
  auto checkpoint = open_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text();
  EXPECT_EQ(checkpoint->store->describe(checkpoint->catalog.objects()[0].key), model);
  Bytes values(3);
  ReadOp op{checkpoint->catalog.objects()[0].key, checkpoint->catalog.flat(0)->place.offset, values};
  ASSERT_TRUE(checkpoint->store->read({&op, 1}).ok());
  EXPECT_EQ(text_of(values), "abc");
  // A key that nobody attached stays what it was: no way out.
  ReadOp out{"/etc/hostname", 0, values};
  EXPECT_EQ(checkpoint->store->read({&out, 1}).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace shardwright
