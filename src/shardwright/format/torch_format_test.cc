#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "shardwright/base/json.h"
#include "shardwright/format/draft_suite.h"
#include "shardwright/format/torch_for_test.h"
#include "shardwright/format/torch_types.h"
#include "shardwright/format/values_suite.h"

namespace shardwright {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string sample(const std::string& name) { return std::string(SHARDWRIGHT_TEST_DATA) + "/torch/" + name + ".pt"; }

/// A path opened, with what a copy would be warned of.
struct Opened {
  std::vector<Error> remarks;
  Result<Checkpoint> checkpoint;
  explicit Opened(const std::string& path) : checkpoint(open(path)) {}
  Result<Checkpoint> open(const std::string& path) {
    OpenOptions options;
    options.remarks = &remarks;
    return open_checkpoint(path, options);
  }
  const Catalog& catalog() const { return checkpoint->catalog; }
};

std::vector<std::string> specs(const Catalog& catalog) {
  std::vector<std::string> out;
  for (TensorId id = 0; id < catalog.size(); ++id) {
    auto spec = catalog.spec(id);
    out.push_back(std::string(spec.name) + " " + std::string(dtype_row(spec.dtype).name) + shape_text(spec.shape));
  }
  return out;
}

template <class T>
std::vector<T> numbers(const Bytes& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// What torch itself says is in the samples.
const std::vector<std::string> kBasic = {"w F32[4, 6]",      "w_t F32[6, 4]",   "w_row2 F32[6]", "bf16 BF16[3, 5]",
                                         "scalar_i64 I64[]", "empty F32[0, 4]", "bool BOOL[2]"};

TEST(Torch, BothFormsSayTheSame) {
  std::map<std::string, Bytes> values[2];
  for (int i : {0, 1}) {
    Opened opened(sample(i == 0 ? "basic_statedict" : "legacy_nonzip"));
    ASSERT_OK(opened.checkpoint);
    EXPECT_EQ(opened.checkpoint->format, &kTorch);
    EXPECT_EQ(specs(opened.catalog()), kBasic);
    EXPECT_EQ(opened.catalog().value_keys().size(), 0u);
    EXPECT_THAT(opened.remarks, IsEmpty());
    values[i] = testing::all_values(*opened.checkpoint->store, opened.catalog());
  }
  EXPECT_EQ(values[0], values[1]);
  // w is 0, 1, 2, ...; the others show the same storage.
  auto w = numbers<float>(values[0]["w"]), turned = numbers<float>(values[0]["w_t"]),
       row = numbers<float>(values[0]["w_row2"]);
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(w[i], static_cast<float>(i));
    EXPECT_EQ(turned[i / 6 + i % 6 * 4], static_cast<float>(i));
  }
  EXPECT_THAT(row, ElementsAre(12, 13, 14, 15, 16, 17));
}

TEST(Torch, TheSamples) {
  struct Sample {
    std::string name;
    std::vector<std::string> specs;
  };
  const Sample all[] = {
      {"module_sd",
       {"0.weight F32[2, 3]", "0.bias F32[2]", "1.weight F32[2]", "1.bias F32[2]", "1.running_mean F32[2]",
        "1.running_var F32[2]", "1.num_batches_tracked I64[]"}},
      {"align4096", {"a F32[3]"}},
      {"nocrc", {"a I64[300]", "b F32[5]"}},
      {"skipdata", {"a F32[300]"}},
      {"untyped", {"a F32[3]", "b U8[5]"}},
      {"proto2", {"a F32[2]"}},
      {"proto3", {"a F32[2]"}},
      {"proto4", {"a F32[2]"}},
      {"proto5", {"a F32[2]"}},
      {"param_misc", {"p F32[2]"}},
      {"quant",
       {"q I8[4]", "q.scale F64[]", "q.zero_point I64[]", "qc U8[2, 3]", "qc.scale F64[2]", "qc.zero_point I64[2]",
        "qc.axis I64[]"}},
      {"exotic",
       {"coo.indices I64[2, 3]", "coo.values F32[3]", "coo.size I64[2]", "csr.crow_indices I64[4]",
        "csr.col_indices I64[3]", "csr.values F32[3]", "csr.size I64[2]"}},
  };
  for (const auto& [name, wanted] : all) {
    Opened opened(sample(name));
    ASSERT_TRUE(opened.checkpoint.ok()) << name << ": " << opened.checkpoint.error().text();
    EXPECT_EQ(specs(opened.catalog()), wanted) << name;
  }
}

TEST(Torch, EveryTypeThatWeHave) {
  Opened opened(sample("dtypes"));
  ASSERT_OK(opened.checkpoint);
  auto found = specs(opened.catalog());
  EXPECT_EQ(found.size(), 17u);
  for (const char* one : {"torch.float8_e8m0fnu F8_E8M0[4]", "torch.uint64 U64[4]", "torch.complex64 C64[4]",
                          "torch.complex128 C128[4]", "fp4 F4[8]"})
    EXPECT_THAT(found, Contains(one));
  auto opaque = parse_json(opened.catalog().value("opaque")->data).value();
  EXPECT_EQ(opaque["torch.complex32"], "a tensor of complex32");
}

TEST(Torch, WhatIsNoTensorIsSaid) {
  Opened misc(sample("param_misc"));
  ASSERT_OK(misc.checkpoint);
  auto values = parse_json(misc.catalog().value("torch.values")->data).value();
  EXPECT_EQ(values, parse_json(R"({"dt":"torch.bfloat16","epoch":3,"lr":0.001,"lst":[1,2,300,70000],"name":"x","neg":-5,
                                   "none":null,"size":[1,2],"t":true})")
                        .value());
  auto opaque = parse_json(misc.catalog().value("opaque")->data).value();
  EXPECT_EQ(opaque.size(), 5u);  // big, bytes, complex, device, set
  EXPECT_EQ(opaque["big"], "an integer of 9 bytes");
  ASSERT_EQ(misc.remarks.size(), 1u);
  EXPECT_THAT(misc.remarks[0].text(), HasSubstr("5 objects in the pickle are no tensor, and are left out"));
  Opened adam(sample("adamw_sd"));
  ASSERT_OK(adam.checkpoint);
  EXPECT_THAT(specs(adam.catalog()), Contains("state.0.exp_avg F32[2, 3]"));
  EXPECT_THAT(adam.catalog().value("torch.values")->data, HasSubstr(R"("param_groups.0.betas":[0.9,0.999])"));
  const std::pair<std::string, std::string> foreign[] = {
      {"subclass", R"({"s":"__main__.S"})"},
      {"numpy_scalar", R"({"np":"numpy._core.multiarray.scalar"})"},
  };
  for (const auto& [name, wanted] : foreign) {
    Opened opened(sample(name));
    ASSERT_OK(opened.checkpoint);
    EXPECT_EQ(opened.catalog().value("opaque")->data, wanted) << name;
    EXPECT_EQ(opened.remarks.size(), 1u);
  }
  Opened exotic(sample("exotic"));
  auto unmade = parse_json(exotic.catalog().value("opaque")->data).value();
  EXPECT_THAT(unmade["m"].get<std::string>(), HasSubstr("no bytes"));
  EXPECT_THAT(unmade["conj"].get<std::string>(), HasSubstr("conjugated"));
  EXPECT_THAT(unmade["neg"].get<std::string>(), HasSubstr("conjugated or negated"));
}

TEST(Torch, OtherFormsAreRefusedByName) {
  const std::pair<std::string, std::string> all[] = {{"torchscript", "TorchScript"},
                                                     {"proto0", "an opcode"},
                                                     {"proto1", "an opcode"},
                                                     {"whole_module", "torch.nn.modules.container.Sequential"},
                                                     {"nested", "torch._utils._rebuild_nested_tensor"}};
  for (const auto& [name, phrase] : all) {
    Opened opened(sample(name));
    EXPECT_CODE(opened.checkpoint, Code::kUnsupported);
    EXPECT_THAT(opened.checkpoint.error().text(), HasSubstr(phrase)) << name;
  }
}

TEST(Torch, ChecksumsAreHeldWhereThereAreAny) {
  TemporaryDirectory directory;
  for (const auto& [name, findings] : {std::pair("basic_statedict", 1u), std::pair("nocrc", 0u)}) {
    auto bytes = read_file(sample(name));
    auto at = bytes.find("FB", bytes.find("/data/0")) + 60;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file(directory.at("x.pt"), bytes);
    auto store = open_file_store(directory.path());
    std::vector<Error> found;
    OpenOptions options;
    options.findings = &found;
    EXPECT_OK(kTorch.check_sums(**store, "x.pt", options));
    EXPECT_EQ(found.size(), findings) << name;
  }
}

TEST(Torch, BigEndianAndCompressed) {
  TemporaryDirectory directory;
  std::string swapped;
  for (float value : {1.f, 2.f, 3.f}) {
    auto raw = le(value);
    swapped.append(raw.rbegin(), raw.rend());
  }
  auto pickle = pickled(p_tensor("FloatStorage", "0", 3, 0, {3}, {1}));
  write_file(directory.at("x.pt"),
             zip_of({{"data.pkl", pickle}, {"byteorder", "big"}, {"data/0", swapped}, {"version", "3"}}));
  Opened opened(directory.at("x.pt"));
  ASSERT_OK(opened.checkpoint);
  EXPECT_EQ(specs(opened.catalog()), std::vector<std::string>{"tensor F32[3]"});
  EXPECT_THAT(numbers<float>(testing::logical_bytes(*opened.checkpoint->store, opened.catalog(), 0)),
              ElementsAre(1, 2, 3));
}

/// A draft made into files of a directory.
struct Written {
  TemporaryDirectory directory;
  std::unique_ptr<Draft> draft;
  Written(const Catalog& want, const WriteOptions& options) {
    auto made = kTorch.draft(want, options);
    EXPECT_OK(made);
    draft = std::move(*made);
    auto files =
        testing::materialise(*draft, [&](TensorId id) { return testing::pattern(id, want.spec(id).nbytes()); });
    for (const auto& [key, bytes] : files) write_file(directory.at(key), text_of(bytes));
  }
};

/// Every type that torch has, a scalar, nothing, and a tie.
Catalog wanted() {
  CatalogBuilder builder;
  for (const auto& row : dtype_table()) {
    if (torch_dtype_name(row.dtype).empty()) continue;
    EXPECT_OK(builder.add_tensor("m." + std::string(row.name), row.dtype, std::vector<int64_t>{3, 4}));
  }
  EXPECT_OK(builder.add_tensor("scalar", DType::kF16, std::vector<int64_t>{}));
  EXPECT_OK(builder.add_tensor("nothing", DType::kI32, std::vector<int64_t>{0, 5}));
  EXPECT_OK(builder.add_tensor("five", DType::kF8E4M3, std::vector<int64_t>{1, 2, 1, 2, 1}));
  EXPECT_OK(builder.add_tensor("embed", DType::kF32, std::vector<int64_t>{2, 300}));
  auto alias = builder.add_tensor("head", DType::kF32, std::vector<int64_t>{2, 300});
  builder.tie(*alias, *alias - 1);
  return *builder.build(/*partial=*/true);
}

TEST(TorchDraft, IsReadAsItWas) {
  auto want = wanted();
  for (uint64_t limit : {kUnknown, uint64_t{200}}) {
    WriteOptions options;
    options.max_shard_bytes = limit;
    Written written(want, options);
    Opened opened(written.directory.path());
    ASSERT_OK(opened.checkpoint);
    EXPECT_EQ(opened.checkpoint->format, &kTorch);
    EXPECT_EQ(opened.catalog().objects().size() > 1, limit != kUnknown);
    auto found = specs(opened.catalog()), expected = specs(want);
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected);
    for (TensorId id = 0; id < want.size(); ++id) {
      auto other = *opened.catalog().find(want.spec(id).name);
      EXPECT_EQ(testing::logical_bytes(*opened.checkpoint->store, opened.catalog(), other),
                testing::pattern(want.same_as(id), want.spec(id).nbytes()))
          << want.spec(id).name;
    }
    auto head = *opened.catalog().find("head");
    EXPECT_EQ(opened.catalog().spec(opened.catalog().same_as(head)).name, "embed");
    std::vector<Error> findings;
    OpenOptions check;
    check.findings = &findings;
    EXPECT_OK(kTorch.check_sums(*opened.checkpoint->store, "", check));
    EXPECT_THAT(findings, IsEmpty());
    for (TensorId id = 0; id < opened.catalog().size(); ++id) {
      auto flat = opened.catalog().flat(id);
      ASSERT_TRUE(flat);
      EXPECT_EQ(flat->place.offset % 64, 0u);
    }
  }
}

TEST(TorchDraft, SaysWhatTorchCannotHold) {
  auto with = [](std::string name, DType dtype, std::vector<int64_t> shape) {
    CatalogBuilder builder;
    EXPECT_OK(builder.add_tensor(name, dtype, shape));
    auto draft = kTorch.draft(*builder.build(true), {});
    return draft.ok() ? std::string() : draft.error().text();
  };
  EXPECT_EQ(with("a", DType::kF4, {3, 2}), "");
  EXPECT_THAT(with("a", DType::kF4, {2, 3}), HasSubstr("end within a byte"));
  EXPECT_THAT(with("a", DType::kF6E2M3, {4}), HasSubstr("PyTorch has no type F6_E2M3"));
  EXPECT_THAT(with("\xff", DType::kU8, {4}), HasSubstr("not UTF-8"));
  EXPECT_EQ(with("a", DType::kU8, std::vector<int64_t>(64, 1)), "");
  EXPECT_THAT(with("a", DType::kU8, std::vector<int64_t>(65, 1)), HasSubstr("65 dimensions"));
}

/// A directory of two shards by the draft: an index and what can be wrong with it.
TEST(TorchSet, TheIndexIsHeldAgainstTheShards) {
  WriteOptions options;
  options.max_shard_bytes = 200;
  Written written(wanted(), options);
  auto path = [&](const std::string& name) { return written.directory.at(name); };
  auto index = parse_json(read_file(path("pytorch_model.bin.index.json"))).value();
  auto first = index["weight_map"]["m.BOOL"].get<std::string>();
  EXPECT_THAT(first, HasSubstr("pytorch_model-00001-of-000"));
  auto changed = index;
  changed["weight_map"]["absent"] = first;
  write_file(path("pytorch_model.bin.index.json"), json_text(changed));
  EXPECT_THAT(Opened(written.directory.path()).checkpoint.error().text(), HasSubstr("absent"));
  changed["weight_map"]["absent"] = "../up.bin";
  write_file(path("pytorch_model.bin.index.json"), json_text(changed));
  EXPECT_THAT(Opened(written.directory.path()).checkpoint.error().text(), HasSubstr("outside its directory"));
  write_file(path("pytorch_model.bin.index.json"), json_text(index));
  auto rebuilt = kTorch.rebuild_index(**open_file_store(written.directory.path()), "", {});
  ASSERT_OK(rebuilt);
  EXPECT_EQ(rebuilt->first, "pytorch_model.bin.index.json");
  EXPECT_EQ(parse_json(text_of(rebuilt->second)).value()["weight_map"].size(), index["weight_map"].size());
  fs::remove(path(first));
  Opened opened(written.directory.path());
  EXPECT_CODE(opened.checkpoint, Code::kNotFound);
  EXPECT_THAT(opened.checkpoint.error().text(), HasSubstr(first));
}

}  // namespace
}  // namespace shardwright
